"""Lossy codecs stay within the bounds that they state; the test computes quantisers itself."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from engine_adapters.codecs.cachegen import STEP_DEVIATIONS, CacheGenCodec
from engine_adapters.codecs.int3 import Int3Codec
from engine_adapters.codecs.int8 import Int8Codec
from tests.engine_adapters.codecs.states import (
    bfloat16_above,
    decoded,
    finite_states,
    randomised,
    rounding,
)

TINY = 2.0**-126
ANCHOR_TOKENS = 16


def halves_of(states: Tensor) -> Tensor:
    """[halves, tokens, channels] in float32."""
    values = states.to(torch.float32)
    return values.flatten(2) if values.dim() == 4 else values[None]


def grouped(matrix: Tensor, dim: int) -> Tensor:
    """NaN-padded groups of at most 64 along ``dim``, as equal as they can be; they are last."""
    lines = matrix.movedim(dim, -1)
    count = -(-lines.shape[-1] // 64)
    size = -(-lines.shape[-1] // count)
    padded = pad(lines, (0, count * size - lines.shape[-1]), value=float("nan"))
    return padded.unflatten(-1, (count, size))


def spread_out(groups: Tensor, like: Tensor, dim: int) -> Tensor:
    """The value of each group [..., groups, 1] for each value of the matrix ``like``."""
    size = grouped(like, dim).shape[-1]
    lines = groups.expand(*groups.shape[:-1], size).flatten(-2)
    return lines[..., : like.shape[dim]].movedim(-1, dim)


def symmetric_scales(matrix: Tensor) -> Tensor:
    """The scale of each value of [rows, channels]."""
    groups = grouped(matrix, -1).nan_to_num(0.0)
    magnitudes = groups.abs().amax(-1, keepdim=True)
    return spread_out(bfloat16_above((magnitudes / 127).clamp(min=TINY)), matrix, -1)


def asymmetric_scales(matrix: Tensor, dim: int) -> Tensor:
    """The scale of each value of [tokens, channels] in groups along ``dim``."""
    groups = grouped(matrix, dim)
    lowest = groups.nan_to_num(float("inf")).amin(-1, keepdim=True)
    highest = groups.nan_to_num(-float("inf")).amax(-1, keepdim=True)
    # Rounded down: up on the other side of zero.
    below = -bfloat16_above(-lowest.clamp(max=0))
    positive = lowest.to(torch.bfloat16)
    is_above = (positive.to(torch.float32) > lowest).to(torch.int16)
    positive = (positive.view(torch.int16) - is_above).view(torch.bfloat16).to(torch.float32)
    offsets = torch.where(lowest > 0, positive, below)
    return spread_out(bfloat16_above(((highest - offsets) / 7).clamp(min=TINY)), matrix, dim)


def check_bound(states: Tensor, result: Tensor, steps: Tensor) -> None:
    """Every error is at most half its step, and the rounding of the dtype."""
    errors = (halves_of(result).double() - halves_of(states).double()).abs()
    slack = rounding(states).reshape(errors.shape)
    # The value is rounded after the error is made, so the step is rounded as well.
    bound = steps.double() / 2 * (1 + torch.finfo(states.dtype).eps + 1e-5) + slack
    assert (errors <= bound).all(), (errors - bound).max()


@randomised(150, states=finite_states())
def test_int8(states: Tensor) -> None:
    codec = Int8Codec()
    rows = halves_of(states)
    steps = symmetric_scales(rows.flatten(0, 1)).view(rows.shape)
    check_bound(states, decoded(codec, codec.encode(states), states), steps)


@randomised(150, states=finite_states())
def test_int3(states: Tensor) -> None:
    codec = Int3Codec()
    halves = halves_of(states)
    dims = [-1] * len(halves)
    if len(halves) == 2 and halves.shape[1] >= 16:
        dims[0] = 0
    steps = torch.stack(
        [asymmetric_scales(half, dim) for half, dim in zip(halves, dims, strict=True)]
    )
    check_bound(states, decoded(codec, codec.encode(states), states), steps)


@pytest.mark.parametrize("layer", range(3))
def test_cachegen(layer: int) -> None:
    codec = CacheGenCodec.of_layer(layer, 3)

    @randomised(100, states=finite_states())
    def run(states: Tensor) -> None:
        exact = states.to(torch.float32)
        values = halves_of(states)
        # In float32 the anchors come out as differences were taken to them.
        anchors = halves_of(decoded(codec, codec.encode(exact), exact))[:, ::ANCHOR_TOKENS]
        nearest = anchors.repeat_interleave(ANCHOR_TOKENS, dim=1)[:, : values.shape[1]]
        differences = values - nearest
        others = torch.arange(values.shape[1]) % ANCHOR_TOKENS != 0
        steps = torch.empty_like(values)
        rows = values[:, ::ANCHOR_TOKENS]
        steps[:, ::ANCHOR_TOKENS] = symmetric_scales(rows.flatten(0, 1)).view(rows.shape)
        if others.any():
            half = differences[:, others]
            deviations = half.double().square().mean(1).sqrt().float() * STEP_DEVIATIONS[layer]
            wanted = torch.maximum(deviations, half.abs().amax(1) / 7).clamp(min=TINY)
            # One bfloat16 more where the deviation lies on the border between two.
            channels = bfloat16_above(wanted * (1 + 1e-5))
            steps[:, others] = channels[:, None].expand_as(half)
        check_bound(states, decoded(codec, codec.encode(states), states), steps)

    run()


def test_deeper_layers_are_coarser() -> None:
    steps = [CacheGenCodec.of_layer(layer, 9).step_deviations for layer in range(9)]
    assert steps == [0.5] * 3 + [1.0] * 3 + [1.5] * 3
    assert [CacheGenCodec.of_layer(layer, 2).step_deviations for layer in (0, 1)] == [0.5, 1.0]
    assert str(steps[0]) in CacheGenCodec.of_layer(0, 9).error_bound


def test_keys_have_a_scale_for_each_channel() -> None:
    """An outlier channel of keys does not cost the others their precision."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(2, 64, 1, 64, generator=generator)
    states[0, :, :, 5] = states[0, :, :, 5] * 100 + 1000
    codec = Int3Codec()
    errors = (decoded(codec, codec.encode(states), states) - states).abs()
    others = [channel for channel in range(64) if channel != 5]
    assert errors[0][..., others].max() < 0.6
    assert errors[0][..., 5].max() < 60
