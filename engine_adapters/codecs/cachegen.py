"""The codec ``cachegen``: differences to anchor tokens, coarser in deeper layers, entropy coded.

In the manner of CacheGen (arXiv 2310.07240), which the earlier Cake paper combines with
its own method (section 5.4): neighbouring tokens have similar states, early layers need
more precision than late ones, and symbols are entropy coded. Ours: symbols are relative
to the spread of their own channel, so that all channels share one code table.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine_adapters.codecs import header, symmetric
from engine_adapters.codecs.anchors import AnchorGroups
from engine_adapters.codecs.bfloat16 import Bits, bits_above, from_bits
from engine_adapters.codecs.bit_packing import pack4, packed4_bytes, unpack4
from engine_adapters.codecs.byte_planes import join_planes, split_planes
from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.grouping import GroupAxis, Grouping
from engine_adapters.codecs.segment import SegmentReader, pack_segment, segment_bytes_max
from engine_adapters.codecs.slice_shape import SHAPES_KEPT, SliceShape
from engine_adapters.codecs.values import SCALE_MAX, SCALE_MIN, store, values_of, workspace

CODE = 4

STEP_DEVIATIONS = (0.5, 1.0, 1.5)
"""Step of the first, middle and last third of the layers, in deviations (rms)."""

SYMBOL_MAX = 7
"""Differences have 15 symbols, so that two of them are one byte for the entropy coder."""


@dataclass(frozen=True, slots=True)
class CacheGenCodec:
    """The codec of one layer: ``step_deviations`` is its quantisation step.

    Anchors have 8 bits a value. Differences are to the anchors as they are decoded, so
    errors do not add up. A channel's step is ``step_deviations`` root mean squares of its
    differences in the slice, but at least their greatest magnitude / SYMBOL_MAX. Decoding
    does not depend on the layer.
    """

    step_deviations: float
    name: ClassVar[str] = "cachegen"
    is_lossless: ClassVar[bool] = False

    @classmethod
    def of_layer(cls, layer: int, layer_count: int) -> "CacheGenCodec":
        """The codec of layer ``layer`` of ``layer_count``."""
        return cls(STEP_DEVIATIONS[layer * len(STEP_DEVIATIONS) // layer_count])

    @property
    def error_bound(self) -> str:
        """Half a step."""
        return (
            "|error| <= step / 2 plus the rounding of the dtype. An anchor's step is its group's "
            f"greatest magnitude / {symmetric.CODE_MAX}; a difference's is the larger of "
            f"{self.step_deviations} root mean squares of its channel's differences and their "
            f"greatest magnitude / {SYMBOL_MAX}; both are rounded up to bfloat16."
        )

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """What symbols that do not compress take: about half a byte a value."""
        segments = _Segments.of(SliceShape(shape, dtype))
        return header.HEADER_BYTES + sum(map(segment_bytes_max, segments.byte_counts))

    def encode(self, states: Tensor) -> bytes:
        """Raises StatesError for NaN, infinity and what exceeds MAGNITUDE_MAX."""
        shape = SliceShape.of(states)
        segments = _Segments.of(shape)
        values = values_of(states, shape)
        # A copy: the values may be the caller's own.
        anchors = segments.groups.anchors(values).clone(memory_format=torch.contiguous_format)
        rows = anchors.view(-1, shape.channel_count)
        scale_bits, anchor_codes = symmetric.quantise(rows, segments.anchor_grouping)
        symmetric.dequantise(rows, segments.anchor_grouping, scale_bits, anchor_codes)
        step_bits, symbols = self._quantise(segments.groups.differences(values, anchors))
        contents = (
            *split_planes(scale_bits),
            anchor_codes.view(np.uint8),
            *split_planes(step_bits),
            pack4(symbols, padding=SYMBOL_MAX),
        )
        return header.pack(CODE, shape, [pack_segment(content) for content in contents])

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Raises PayloadError."""
        shape = SliceShape.of_target(out)
        segments = _Segments.of(shape)
        reader = SegmentReader(header.unpack(CODE, shape, payload))
        scale_high, scale_low, anchor_codes, step_high, step_low, packed = (
            reader.read(byte_count) for byte_count in segments.byte_counts
        )
        reader.finish()
        channels = shape.channel_count
        anchors = torch.empty(shape.half_count, segments.groups.anchor_count, channels)
        symmetric.dequantise(
            anchors.view(-1, channels),
            segments.anchor_grouping,
            _joined(scale_high, scale_low),
            anchor_codes.view(np.int8),
        )
        steps = from_bits(_joined(step_high, step_low), SCALE_MAX).view(-1, channels)
        symbols = unpack4(packed, segments.symbol_count).view(np.int8)
        symbols -= SYMBOL_MAX
        codes = torch.from_numpy(symbols).view(shape.half_count, -1, channels)
        values = workspace(out, shape)
        segments.groups.dequantise(codes, steps, anchors, values)
        store(values, out)

    def _quantise(self, differences: Tensor) -> tuple[Bits, NDArray[np.uint8]]:
        """Steps of [halves, channels] and symbols 0 to 14 of [halves, tokens, channels], flat.

        A slice without differences has steps all the same. Overwrites ``differences``.
        """
        halves, tokens, channels = differences.shape
        steps = torch.full((halves, channels), SCALE_MIN)
        if tokens:
            magnitudes = torch.maximum(-differences.amin(dim=1), differences.amax(dim=1))
            deviations = differences.square().mean(dim=1).sqrt_()
            for step in (deviations * self.step_deviations, magnitudes / SYMBOL_MAX):
                torch.maximum(steps, step, out=steps)
        step_bits = bits_above(steps)
        rounded = from_bits(step_bits, SCALE_MAX).view(halves, 1, channels)
        symbols = differences.div_(rounded).round_().add_(SYMBOL_MAX)
        return step_bits, symbols.to(torch.int8).numpy().reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True)
class _Segments:
    """Sizes of the body: scales and codes of the anchors, steps and symbols of the rest."""

    groups: AnchorGroups
    anchor_grouping: Grouping
    symbol_count: int
    byte_counts: tuple[int, ...]

    @classmethod
    @lru_cache(maxsize=SHAPES_KEPT)
    def of(cls, shape: SliceShape) -> "_Segments":
        groups = AnchorGroups(shape.token_count)
        rows = shape.half_count * groups.anchor_count
        grouping = Grouping.of(rows, shape.channel_count, GroupAxis.CHANNELS)
        step_count = shape.half_count * shape.channel_count
        symbol_count = step_count * groups.difference_count
        byte_counts = (
            *(grouping.scale_count,) * 2,
            rows * shape.channel_count,
            *(step_count,) * 2,
            packed4_bytes(symbol_count),
        )
        return cls(groups, grouping, symbol_count, byte_counts)


def _joined(high: NDArray[np.uint8], low: NDArray[np.uint8]) -> Bits:
    bits = np.empty(high.size, np.uint16)
    join_planes((high, low), bits)
    return bits
