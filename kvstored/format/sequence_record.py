"""One sequence in the index: the chunks of a conversation in their order, and its tail."""

import struct
from dataclasses import dataclass

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.identity import KEY_BYTES

_BODY = struct.Struct("<HxxI32sQ")
_TAIL = struct.Struct("<32sI4x")
_CHECKSUM = struct.Struct("<Q")
VERSION = 2
_VERSION_WITHOUT_TAIL = 1
"""Ends with the keys; it is read, and no longer written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceTail:
    """A short chunk behind the last complete one: its key and its tokens (at least 1)."""

    key: bytes
    token_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceRecord:
    """``keys`` names the chunks that the sequence has now, first to last.

    ``dropped_chunks`` counts those that were truncated at the front, so that
    positions stay known.
    """

    layout_id: bytes
    keys: tuple[bytes, ...] = ()
    dropped_chunks: int = 0
    tail: SequenceTail | None = None

    def encode(self, name_key: bytes) -> bytes:
        """Value of the entry; its checksum covers the entry's key ``name_key`` too."""
        fixed = _BODY.pack(VERSION, len(self.keys), self.layout_id, self.dropped_chunks)
        tail = _TAIL.pack(self.tail.key, self.tail.token_count) if self.tail else _TAIL.pack(b"", 0)
        body = fixed + tail + b"".join(self.keys)
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
        if version not in (VERSION, _VERSION_WITHOUT_TAIL):
            raise FormatError(f"sequence record version {version}, expected 1 or {VERSION}")
        has_tail = version == VERSION
        first = _BODY.size + (_TAIL.size if has_tail else 0)
        if len(body) != first + key_count * KEY_BYTES:
            raise FormatError(f"sequence record of {len(value)} bytes with {key_count} keys")
        key, token_count = _TAIL.unpack_from(body, _BODY.size) if has_tail else (b"", 0)
        return cls(
            layout_id=layout_id,
            keys=tuple(
                [body[start : start + KEY_BYTES] for start in range(first, len(body), KEY_BYTES)]
            ),
            dropped_chunks=dropped_chunks,
            tail=SequenceTail(key=key, token_count=token_count) if token_count else None,
        )
