"""One layout in the index, so that chunks can be read after a restart."""

import struct

from google.protobuf.message import DecodeError

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored_contract.layout import LayoutError, StateLayout
from kvstored_protos.v1 import common_pb2

_VERSION = struct.Struct("<H")
_CHECKSUM = struct.Struct("<Q")
VERSION = 1


def encode(layout: StateLayout) -> bytes:
    """Value of the entry: version, the layout as protobuf, checksum of both and of the id."""
    body = _VERSION.pack(VERSION) + layout.to_proto().SerializeToString(deterministic=True)
    return body + _CHECKSUM.pack(checksum(layout.layout_id + body))


def decode(layout_id: bytes, value: bytes) -> StateLayout:
    """Parses the value that lay under ``layout_id``; raises FormatError.

    The id is derived again from what was parsed: a record under another layout's id
    is refused.
    """
    if len(value) < _VERSION.size + _CHECKSUM.size:
        raise FormatError(f"layout record of {len(value)} bytes")
    body = value[: -_CHECKSUM.size]
    if _CHECKSUM.unpack_from(value, len(body))[0] != checksum(layout_id + body):
        raise FormatError("layout record checksum")
    (version,) = _VERSION.unpack_from(body)
    if version != VERSION:
        raise FormatError(f"layout record version {version}, expected {VERSION}")
    try:
        message = common_pb2.StateLayout.FromString(body[_VERSION.size :])
        layout = StateLayout.from_proto(message, is_stored=True)
    except (DecodeError, LayoutError) as error:
        raise FormatError(f"layout record: {error}") from error
    if layout.layout_id != layout_id:
        raise FormatError("layout record under another layout's id")
    return layout
