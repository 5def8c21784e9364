"""What every codec offers."""

from typing import Protocol, TypeAlias

import torch
from torch import Tensor

Payload: TypeAlias = bytes | bytearray | memoryview
"""Encoded bytes: contiguous, one byte an item; they are not changed and not kept."""


class Codec(Protocol):
    """Turns the states of one slice into bytes and back.

    A slice is a tensor on the CPU, kv [2, tokens, kv_heads, head_dim] or hidden
    [tokens, hidden_size], in float32, bfloat16 or float16. Codecs are immutable: any
    number of threads may share one. The bytes of a codec are little-endian and say
    their codec, version, shape and length; whether they are the bytes that were encoded
    is for the store to know, which checks every slice: a damage that leaves them well
    formed decodes to other, finite values unless the codec is lossless.
    """

    @property
    def name(self) -> str:
        """The name in the registry, which a layout carries."""
        ...

    @property
    def is_lossless(self) -> bool:
        """Whether decoding gives back every bit. If not, NaN and infinity are refused."""
        ...

    @property
    def error_bound(self) -> str:
        """How far a decoded value may be from the encoded one, in one sentence."""
        ...

    def bytes_max(self, shape: tuple[int, ...], dtype: torch.dtype) -> int:
        """Upper bound of the encoded bytes of such a slice; raises StatesError."""
        ...

    def encode(self, states: Tensor) -> bytes:
        """The bytes of ``states``, which may be strided; raises StatesError."""
        ...

    def decode(self, payload: Payload, out: Tensor) -> None:
        """Decodes all of ``payload`` into ``out``, whose shape and dtype it must have.

        ``out`` is contiguous. Raises PayloadError, and then leaves any values in ``out``;
        allocates no more than a few times the bytes of ``out``, whatever the payload says.
        """
        ...
