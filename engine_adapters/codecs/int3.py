"""The codec ``int3``: 3 bits a value, a scale and an offset for each group of at most 64."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine_adapters.codecs import header
from engine_adapters.codecs.bfloat16 import Bits, bits_above, bits_below, from_bits
from engine_adapters.codecs.bit_packing import pack3, packed3_bytes, unpack3
from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.codecs.grouping import GroupAxis, Grouping
from engine_adapters.codecs.slice_shape import SHAPES_KEPT, SliceShape
from engine_adapters.codecs.values import SCALE_MAX, SCALE_MIN, store, values_of, workspace

CODE = 3
CODE_MAX = 7

CHANNEL_TOKENS_MIN = 16
"""Tokens from which on keys are grouped along tokens; shorter groups would be mostly scales."""


@dataclass(frozen=True, slots=True)
class Int3Codec:
    """Asymmetric. Keys are grouped along tokens, one channel a group; all else along channels.

    So outlier channels of keys have a scale of their own (KVQuant and KIVI, which Cake's
    evaluation uses for 3 bits: keys per channel, values per token).
    """

    name: ClassVar[str] = "int3"
    is_lossless: ClassVar[bool] = False
    error_bound: ClassVar[str] = (
        "|error| <= scale / 2 plus the rounding of the dtype; a group's scale is its range / 7, "
        "where its least value is rounded down and the scale up to bfloat16."
    )

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """The same for all values."""
        return header.HEADER_BYTES + _Body.of(SliceShape(shape, dtype)).byte_count

    def encode(self, states: Tensor) -> bytes:
        """Raises StatesError for NaN, infinity and what exceeds MAGNITUDE_MAX."""
        shape = SliceShape.of(states)
        scaling: list[bytes] = []
        codes: list[NDArray[np.uint8]] = []
        for half, grouping in zip(values_of(states, shape), _Body.of(shape).groupings, strict=True):
            offset_bits, scale_bits, half_codes = _quantise(half, grouping)
            scaling += [offset_bits.tobytes(), scale_bits.tobytes()]
            codes.append(half_codes)
        return header.pack(CODE, shape, [*scaling, pack3(np.concatenate(codes)).tobytes()])

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Raises PayloadError."""
        shape = SliceShape.of_target(out)
        octets = header.unpack(CODE, shape, payload)
        body = _Body.of(shape)
        if octets.size != body.byte_count:
            raise PayloadError(f"{octets.size} bytes of offsets, scales and codes")
        scaling = from_bits(octets[: body.scaling_bytes].view("<u2"), SCALE_MAX)
        values = workspace(out, shape)
        codes = unpack3(octets[body.scaling_bytes :], shape.value_count)
        np.copyto(values.view(-1).numpy(), codes)
        for half, grouping in zip(values, body.groupings, strict=True):
            count = grouping.scale_count
            offsets, scales, scaling = scaling.tensor_split((count, 2 * count))
            grouping.dequantise(half, scales, offsets)
        store(values, out)


@dataclass(frozen=True, slots=True)
class _Body:
    """Sizes of a body, and a grouping for each half: [keys, values] or [hidden states]."""

    groupings: tuple[Grouping, ...]
    scaling_bytes: int
    byte_count: int

    @classmethod
    @lru_cache(maxsize=SHAPES_KEPT)
    def of(cls, shape: SliceShape) -> "_Body":
        tokens, channels = shape.token_count, shape.channel_count
        groupings = [Grouping.of(tokens, channels, GroupAxis.CHANNELS)] * shape.half_count
        if shape.half_count > 1 and tokens >= CHANNEL_TOKENS_MIN:
            groupings[0] = Grouping.of(tokens, channels, GroupAxis.TOKENS)
        scaling_bytes = sum(4 * grouping.scale_count for grouping in groupings)
        byte_count = scaling_bytes + packed3_bytes(shape.value_count)
        return cls(tuple(groupings), scaling_bytes, byte_count)


def _quantise(matrix: Tensor, grouping: Grouping) -> tuple[Bits, Bits, NDArray[np.uint8]]:
    """Offsets, scales and codes of float32 [tokens, channels]."""
    lowest, highest = grouping.extremes(matrix)
    # Rounded outwards, so that all values lie between the first and the last code.
    offset_bits = bits_below(lowest)
    offsets = from_bits(offset_bits, SCALE_MAX).view(grouping.scale_shape)
    scale_bits = bits_above(((highest - offsets) / CODE_MAX).clamp_(min=SCALE_MIN))
    scales = from_bits(scale_bits, SCALE_MAX).view(grouping.scale_shape)
    codes = (grouping.split(matrix) - offsets).div_(scales).round_()
    flat = grouping.join(codes).to(torch.int8).contiguous().numpy().reshape(-1).view(np.uint8)
    return offset_bits, scale_bits, flat
