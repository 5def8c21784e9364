"""The values that lossy codecs work on, and the way back to the dtype of the states."""

import torch
from torch import Tensor

from engine_adapters.codecs.errors import StatesError
from engine_adapters.codecs.slice_shape import SliceShape

MAGNITUDE_MAX = 2.0**56
"""Largest value that lossy codecs take: a float32 holds the sum of a slice's squares."""

SCALE_MIN = 2.0**-126
"""Smallest scale of a quantiser: a smaller float32 would have lost precision itself."""

SCALE_MAX = 2.0**58
"""Largest scale or offset that values up to MAGNITUDE_MAX can lead to."""


def values_of(states: Tensor, shape: SliceShape) -> Tensor:
    """float32 [halves, tokens, channels]; raises StatesError for what has no error bound."""
    values = (
        states.detach()
        .to(torch.float32)
        .reshape(shape.half_count, shape.token_count, shape.channel_count)
    )
    lowest, highest = values.aminmax()
    # Written so that NaN, which compares as false, is refused too.
    if not (lowest >= -MAGNITUDE_MAX and highest <= MAGNITUDE_MAX):
        raise StatesError(
            f"lossy codecs take finite values up to {MAGNITUDE_MAX:.2g}, "
            f"not {lowest.item()} to {highest.item()}; use a lossless one"
        )
    return values.contiguous()


def workspace(out: Tensor, shape: SliceShape) -> Tensor:
    """float32 [halves, tokens, channels] to decode into: ``out`` itself if it has the dtype."""
    dims = (shape.half_count, shape.token_count, shape.channel_count)
    if shape.dtype is torch.float32:
        return out.detach().view(dims)
    return torch.empty(dims, dtype=torch.float32)


def store(values: Tensor, out: Tensor) -> None:
    """Rounds a workspace to ``out``'s dtype; no value becomes infinite by it."""
    if out.dtype is torch.float32:
        return
    if out.dtype is torch.float16:
        # A quantised value may lie just beyond the largest one that there is.
        limits = torch.finfo(torch.float16)
        values.clamp_(limits.min, limits.max)
    out.detach().view(values.shape).copy_(values)
