"""The first bytes of every payload but a raw one: what it is, and how long."""

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine_adapters.codecs.codec import Payload
from engine_adapters.codecs.errors import PayloadError
from engine_adapters.codecs.slice_shape import DTYPES, SliceShape

MAGIC = b"KVCD"
VERSION = 1

_IDENTITY = struct.Struct("<4sBBBBIIII")
_LENGTH = struct.Struct("<II")
HEADER_BYTES = _IDENTITY.size + _LENGTH.size

_DIMS_MAX = 4


def pack(code: int, shape: SliceShape, body: Sequence[bytes]) -> bytes:
    """A payload of the codec with number ``code``: the header and the parts of ``body``."""
    body_bytes = sum(map(len, body))
    return b"".join((_identity(code, shape), _LENGTH.pack(body_bytes, 0), *body))


def unpack(code: int, shape: SliceShape, payload: Payload) -> NDArray[np.uint8]:
    """The body of a payload, as a view; raises PayloadError."""
    if len(payload) < HEADER_BYTES:
        raise PayloadError(f"a payload of {len(payload)} bytes is shorter than its header")
    if bytes(payload[: _IDENTITY.size]) != _identity(code, shape):
        raise PayloadError(
            f"no payload of codec {code}, version {VERSION}, for {list(shape.dims)} {shape.dtype}"
        )
    expected_bytes = payload_bytes(payload)
    if len(payload) != expected_bytes:
        raise PayloadError(f"a payload of {expected_bytes} bytes has {len(payload)} of them")
    return np.frombuffer(payload, np.uint8, offset=HEADER_BYTES)


def payload_bytes(payload: Payload) -> int:
    """Length of the payload that ``payload`` begins with, as its header states it.

    For a reader whose buffer has room for ``bytes_max``. Raises PayloadError when there
    is no header, and for a reserved field that is set.
    """
    if len(payload) < HEADER_BYTES or bytes(payload[: len(MAGIC)]) != MAGIC:
        raise PayloadError("no header of a payload")
    body_bytes, reserved = _LENGTH.unpack_from(payload, _IDENTITY.size)
    if reserved:
        raise PayloadError("a payload with an unknown field")
    return HEADER_BYTES + int(body_bytes)


def _identity(code: int, shape: SliceShape) -> bytes:
    dims = shape.dims + (0,) * (_DIMS_MAX - len(shape.dims))
    return _IDENTITY.pack(MAGIC, code, VERSION, DTYPES.index(shape.dtype), len(shape.dims), *dims)
