"""The codec ``int8``: 8 bits a value and a scale for each group of at most 64 channels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engine_adapters.codecs import header, symmetric
from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.codecs.grouping import GroupAxis, Grouping
from engine_adapters.codecs.slice_shape import SliceShape
from engine_adapters.codecs.values import store, values_of, workspace

CODE = 2


@dataclass(frozen=True, slots=True)
class Int8Codec:
    """Symmetric; groups lie within one token, along its channels (GROUP_VALUES_MAX)."""

    name: ClassVar[str] = "int8"
    is_lossless: ClassVar[bool] = False
    error_bound: ClassVar[str] = (
        "|error| <= scale / 2 plus the rounding of the dtype; a group's scale is its greatest "
        "magnitude / 127, rounded up to bfloat16."
    )

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """The same for all values."""
        slice_shape = SliceShape(shape, dtype)
        scale_bytes = 2 * _grouping(slice_shape).scale_count
        return header.HEADER_BYTES + scale_bytes + slice_shape.value_count

    def encode(self, states: Tensor) -> bytes:
        """Raises StatesError for NaN, infinity and what exceeds MAGNITUDE_MAX."""
        shape = SliceShape.of(states)
        matrix = values_of(states, shape).view(-1, shape.channel_count)
        scale_bits, codes = symmetric.quantise(matrix, _grouping(shape))
        return header.pack(CODE, shape, [scale_bits.tobytes(), codes.tobytes()])

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Raises PayloadError."""
        shape = SliceShape.of_target(out)
        body = header.unpack(CODE, shape, payload)
        grouping = _grouping(shape)
        scale_bytes = 2 * grouping.scale_count
        if body.size != scale_bytes + shape.value_count:
            raise PayloadError(f"{body.size} bytes of scales and codes")
        values = workspace(out, shape)
        symmetric.dequantise(
            values.view(-1, shape.channel_count),
            grouping,
            body[:scale_bytes].view("<u2"),
            body[scale_bytes:].view(np.int8),
        )
        store(values, out)


def _grouping(shape: SliceShape) -> Grouping:
    rows = shape.half_count * shape.token_count
    return Grouping.of(rows, shape.channel_count, GroupAxis.CHANNELS)
