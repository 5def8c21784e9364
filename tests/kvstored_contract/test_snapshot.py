"""The layout of a snapshot, which both sides derive."""

from dataclasses import replace

import pytest

from kvstored_contract.layout import LayerState, LayoutError, StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry

LAYOUT = StateLayout(
    model="m",
    dtype="f",
    layers=(
        LayerState(StateKind.KV, 100),
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.HIDDEN, 64),
        LayerState(StateKind.HIDDEN, 7),
    ),
)


def test_blocks_follow_each_other_at_lines_of_the_cache() -> None:
    geometry = SnapshotGeometry(LAYOUT, 3)
    assert geometry.offsets == (0, 320, 320, 512)
    assert geometry.byte_count == 576
    assert (geometry.layout, geometry.row_count) == (LAYOUT, 3)


def test_one_row() -> None:
    assert SnapshotGeometry(LAYOUT, 1).offsets == (0, 128, 128, 192)


@pytest.mark.parametrize("row_count", [0, -1])
def test_a_snapshot_has_rows(row_count: int) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        SnapshotGeometry(LAYOUT, row_count)


def test_keys_and_values_are_halves() -> None:
    odd = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 3),))
    with pytest.raises(LayoutError, match="cannot be halved"):
        SnapshotGeometry(odd, 1)


def test_encoded_chunks_have_no_rows() -> None:
    with pytest.raises(LayoutError, match="chunks of codec 'zstd' have no rows; put them complete"):
        SnapshotGeometry(replace(LAYOUT, codec="zstd"), 1)
