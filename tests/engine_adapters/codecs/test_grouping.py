import pytest
import torch

from engine_adapters.codecs.grouping import GROUP_VALUES_MAX, GroupAxis, Grouping

SIZES = [1, 2, 63, 64, 65, 97, 128, 130, 640]


@pytest.mark.parametrize("axis", GroupAxis)
@pytest.mark.parametrize("length", SIZES)
def test_groups_are_equal_and_small(axis: GroupAxis, length: int) -> None:
    rows, columns = (length, 3) if axis is GroupAxis.TOKENS else (3, length)
    grouping = Grouping.of(rows, columns, axis)
    assert grouping.group_values <= GROUP_VALUES_MAX
    assert 0 <= grouping.padding < grouping.group_count
    assert grouping.group_count * grouping.group_values - grouping.padding == length
    assert grouping.scale_count == 3 * grouping.group_count
    assert torch.Size(grouping.scale_shape).numel() == grouping.scale_count


@pytest.mark.parametrize("axis", GroupAxis)
@pytest.mark.parametrize("length", SIZES)
def test_splits_joins_and_dequantises(axis: GroupAxis, length: int) -> None:
    rows, columns = (length, 3) if axis is GroupAxis.TOKENS else (3, length)
    grouping = Grouping.of(rows, columns, axis)
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(length))
    assert torch.equal(grouping.join(grouping.split(matrix)), matrix)
    lowest, highest = grouping.extremes(matrix)
    assert lowest.min() == matrix.min()
    assert highest.max() == matrix.max()
    assert lowest.shape == highest.shape == grouping.scale_shape
    # The least and the greatest value of a group enclose each of its own.
    inside = (grouping.split(matrix) >= lowest) & (grouping.split(matrix) <= highest)
    assert inside.all()
    restored = matrix.clone()
    scales = torch.arange(1.0, grouping.scale_count + 1)
    grouping.dequantise(restored, scales, scales * 10)
    factors = grouping.join(
        scales.view(grouping.scale_shape).expand_as(grouping.split(matrix)).contiguous()
    )
    assert torch.equal(restored, matrix * factors + factors * 10)
    grouping.dequantise(restored.copy_(matrix), scales)
    assert torch.equal(restored, matrix * factors)
