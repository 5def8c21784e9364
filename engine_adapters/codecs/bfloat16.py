"""Rounding to bfloat16 in a given direction: scales whose error has a known sign."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine_adapters.codecs.errors import PayloadError

Bits = NDArray[np.uint16]
"""bfloat16 values by their bits, little-endian."""

_SIGN = np.uint16(0x8000)


def bits_above(values: Tensor) -> Bits:
    """The smallest bfloat16 that is not below each of ``values`` (finite float32), flat."""
    words = values.contiguous().numpy().reshape(-1).view(np.uint32)
    # Cutting bits off moves towards zero, so what is positive is moved up first.
    raised = np.where(words >> 31, words, words + 0xFFFF)
    return (raised >> 16).astype("<u2")


def bits_below(values: Tensor) -> Bits:
    """The largest bfloat16 that is not above each of ``values`` (finite float32), flat."""
    return bits_above(-values) ^ _SIGN


def from_bits(bits: Bits, magnitude_max: float) -> Tensor:
    """float32 of the same values; raises PayloadError if one exceeds ``magnitude_max``.

    NaN exceeds it.
    """
    # Without its sign the bits of a float are ordered as its magnitude, NaN last.
    if (bits & ~_SIGN).max() > _bits_of(magnitude_max):
        raise PayloadError("a scale is out of range")
    return torch.from_numpy((bits.astype(np.uint32) << 16).view(np.float32))


def _bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32)) >> 16
