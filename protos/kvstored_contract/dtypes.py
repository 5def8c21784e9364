"""The dtypes that a layout may name. Pure.

The store computes with none of them: a name keeps states of one dtype from being taken for those
of another, so a misspelt one would be a dtype of its own, and its chunks misses for everybody.
"""

import re

_TORCH = (
    *("float64", "float32", "float16", "bfloat16"),
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    "float4_e2m1fn_x2",
    *("int64", "int32", "int16", "int8", "int4"),
    *("uint64", "uint32", "uint16", "uint8", "uint4"),
)
_NUMPY_CODES = ("f", "f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
_ENGINE_CACHES = (
    *("fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head"),
    *("int8_per_token_head", "int4_per_token_head"),
    *("nvfp4", "nvfp4_4over6", "nvfp4_ds_mla"),
)
"""What vLLM calls the numbers of its caches."""

DTYPES = frozenset((*_TORCH, *_NUMPY_CODES, *_ENGINE_CACHES, "bytes"))

_OPAQUE = re.compile(r"uint8_[a-z0-9_]+")
"""Bytes in a format of an engine's own, which is named after ``uint8_``."""


def is_dtype(name: str) -> bool:
    """Whether a layout may name this dtype."""
    return name in DTYPES or _OPAQUE.fullmatch(name) is not None
