"""The codec ``raw``: the bytes of the tensor themselves."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from engine_adapters.codecs.byte_view import byte_view
from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.codecs.slice_shape import SliceShape


@dataclass(frozen=True, slots=True)
class RawCodec:
    """No header, so that a payload is what an engine's own copy of the states would be."""

    name: ClassVar[str] = "raw"
    is_lossless: ClassVar[bool] = True
    error_bound: ClassVar[str] = "Decoded states are equal bit for bit."

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """The bytes of the tensor."""
        return SliceShape(shape, dtype).raw_bytes

    def encode(self, states: Tensor) -> bytes:
        """The values in row-major order."""
        SliceShape.of(states)
        return byte_view(states.contiguous()).tobytes()

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Copies; raises PayloadError for another length."""
        raw_bytes = SliceShape.of_target(out).raw_bytes
        if len(payload) != raw_bytes:
            raise PayloadError(f"{len(payload)} bytes for a slice of {raw_bytes}")
        np.copyto(byte_view(out), np.frombuffer(payload, np.uint8))
