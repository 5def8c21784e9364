"""What a codec is given: the states of one layer of one chunk."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.codecs.errors import StatesError

SLICE_BYTES_MAX = 2**31
"""Largest slice before encoding."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes of states. Payloads name them by their place here, so it must not change."""

SHAPES_KEPT = 64
"""Shapes whose sizes a codec remembers; a model has few."""

_KV_DIMS = 4
_HIDDEN_DIMS = 2


@dataclass(frozen=True, slots=True)
class SliceShape:
    """Shape and dtype of a slice: kv [2, tokens, kv_heads, head_dim] or hidden [tokens, hidden].

    Raises StatesError for any other shape, for an empty one, and for one that exceeds
    SLICE_BYTES_MAX.
    """

    dims: tuple[int, ...]
    dtype: torch.dtype

    def __post_init__(self) -> None:
        is_kv = len(self.dims) == _KV_DIMS and self.dims[0] == 2
        if not is_kv and len(self.dims) != _HIDDEN_DIMS:
            raise StatesError(
                "a slice has the shape [2, tokens, kv_heads, head_dim] or [tokens, hidden_size], "
                f"not {list(self.dims)}"
            )
        if self.dtype not in DTYPES:
            names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
            raise StatesError(f"states of dtype {self.dtype} have no codec; use one of {names}")
        if min(self.dims) < 1 or self.raw_bytes > SLICE_BYTES_MAX:
            raise StatesError(
                f"a slice of shape {list(self.dims)} has {self.raw_bytes} bytes; "
                f"1 to {SLICE_BYTES_MAX} can be encoded"
            )

    @classmethod
    def of(cls, states: Tensor) -> "SliceShape":
        """Shape of a tensor on the CPU; raises StatesError."""
        if states.device.type != "cpu":
            raise StatesError(f"states on {states.device} must be copied to the CPU first")
        return cls(tuple(states.shape), states.dtype)

    @classmethod
    def of_target(cls, out: Tensor) -> "SliceShape":
        """Shape of a tensor that is decoded into; it must be contiguous as well."""
        shape = cls.of(out)
        if not out.is_contiguous():
            raise StatesError("a slice can only be decoded into a contiguous tensor")
        return shape

    @property
    def half_count(self) -> int:
        """2 for keys and values, 1 for hidden states."""
        return 2 if len(self.dims) == _KV_DIMS else 1

    @property
    def token_count(self) -> int:
        """Tokens of the slice."""
        return self.dims[-3] if len(self.dims) == _KV_DIMS else self.dims[0]

    @property
    def channel_count(self) -> int:
        """Values of one token in one half."""
        return self.value_count // (self.half_count * self.token_count)

    @property
    def value_count(self) -> int:
        """All values of the slice."""
        return math.prod(self.dims)

    @property
    def raw_bytes(self) -> int:
        """Bytes of the slice before encoding."""
        return self.value_count * self.dtype.itemsize
