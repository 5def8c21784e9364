"""The codec ``zstd``: byte planes, each compressed by itself."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine_adapters.codecs import header
from engine_adapters.codecs.byte_planes import join_planes, split_planes
from engine_adapters.codecs.byte_view import byte_view
from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.segment import SegmentReader, pack_segment, segment_bytes_max
from engine_adapters.codecs.slice_shape import SliceShape

CODE = 1


@dataclass(frozen=True, slots=True)
class ZstdCodec:
    """Signs and exponents of states are alike and compress; mantissas mostly do not.

    A plane that does not become shorter is stored as it is.
    """

    name: ClassVar[str] = "zstd"
    is_lossless: ClassVar[bool] = True
    error_bound: ClassVar[str] = "Decoded states are equal bit for bit."

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """Little more than the bytes of the tensor."""
        slice_shape = SliceShape(shape, dtype)
        plane_bytes = segment_bytes_max(slice_shape.value_count)
        return header.HEADER_BYTES + dtype.itemsize * plane_bytes

    def encode(self, states: Tensor) -> bytes:
        """One segment for each byte of a value, the most significant first."""
        shape = SliceShape.of(states)
        planes = split_planes(_words(states.contiguous(), shape))
        return header.pack(CODE, shape, [pack_segment(plane) for plane in planes])

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Raises PayloadError."""
        shape = SliceShape.of_target(out)
        reader = SegmentReader(header.unpack(CODE, shape, payload))
        planes = [reader.read(shape.value_count) for _ in range(shape.dtype.itemsize)]
        reader.finish()
        join_planes(planes, _words(out, shape))


def _words(states: Tensor, shape: SliceShape) -> NDArray[np.uint16] | NDArray[np.uint32]:
    """The bits of the values, aliased."""
    octets = byte_view(states)
    return octets.view(np.uint16) if shape.dtype.itemsize == 2 else octets.view(np.uint32)
