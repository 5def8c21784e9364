"""One sequence in the index: the chunks of a conversation in their order."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.identity import KEY_BYTES

_BODY = struct.Struct("<HxxI32sQ")
_CHECKSUM = struct.Struct("<Q")
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecord:
    """``keys`` names the chunks that the sequence has now, first to last.

    ``dropped_chunks`` counts those that were truncated at the front, so that
    positions stay known.
    """

    layout_id: bytes
    keys: tuple[bytes, ...] = ()
    dropped_chunks: int = 0

    def encode(self, name_key: bytes) -> bytes:
        """Value of the entry; its checksum covers the entry's key ``name_key`` too."""
        fixed = _BODY.pack(VERSION, len(self.keys), self.layout_id, self.dropped_chunks)
        body = fixed + b"".join(self.keys)
        return body + _CHECKSUM.pack(checksum(name_key + body))

    @classmethod
    def decode(cls, name_key: bytes, value: bytes) -> "SequenceRecord":
        """Parses the value that lay under ``name_key``; raises FormatError."""
        if len(value) < _BODY.size + _CHECKSUM.size:
            raise FormatError(f"sequence record of {len(value)} bytes")
        body = value[: -_CHECKSUM.size]
        if _CHECKSUM.unpack_from(value, len(body))[0] != checksum(name_key + body):
            raise FormatError("sequence record checksum")
        version, key_count, layout_id, dropped_chunks = _BODY.unpack_from(body)
        if version != VERSION:
            raise FormatError(f"sequence record version {version}, expected {VERSION}")
        if len(body) != _BODY.size + key_count * KEY_BYTES:
            raise FormatError(f"sequence record of {len(value)} bytes with {key_count} keys")
        keys = tuple(
            body[start : start + KEY_BYTES] for start in range(_BODY.size, len(body), KEY_BYTES)
        )
        return cls(layout_id=layout_id, keys=keys, dropped_chunks=dropped_chunks)
