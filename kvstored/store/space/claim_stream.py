"""Claims as a stream of bytes: from the probe, and in the snapshot of a clean stop. Pure.

A stream is parts, each with its kind, its length and a checksum of all of these. The
last part counts the claims, so that a stream that was cut off is never taken for whole.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.store.space.claim_block import ClaimBlock

_FRAME = struct.Struct("<4sIQ")
_KEY = struct.Struct("<H")
_TOTAL = struct.Struct("<Q")
PART_BYTES_MAX = 64 * 1024 * 1024


class PartKind(Enum):
    """What a part of a stream holds."""

    HEADER = b"HEAD"
    """Whatever the stream's maker has to say."""
    CLAIMS = b"CLMS"
    DAMAGED_KEYS = b"DKEY"
    END = b"LAST"


class Sink(Protocol):
    """Where a stream is written to."""

    def write(self, data: bytes, /) -> object:
        """Takes all of ``data``."""


class Readable(Protocol):
    """Where a stream is read from."""

    def read(self, byte_count: int, /) -> bytes:
        """Reads so many bytes, less at the end."""


class ClaimWriter:
    """Writes one stream; raises what the sink raises. Not thread-safe."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._claim_count = 0

    def header(self, payload: bytes) -> None:
        """Writes the part that comes first."""
        self._part(PartKind.HEADER, payload)

    def claims(self, block: ClaimBlock) -> None:
        """Writes one block."""
        self._claim_count += len(block)
        self._part(PartKind.CLAIMS, block.encode())

    def damaged_keys(self, keys: list[bytes]) -> None:
        """Writes keys of the index whose value is damaged."""
        if keys:
            payload = b"".join(_KEY.pack(len(key)) + key for key in keys)
            self._part(PartKind.DAMAGED_KEYS, payload)

    def end(self) -> None:
        """Writes the part that makes the stream whole."""
        self._part(PartKind.END, _TOTAL.pack(self._claim_count))

    def _part(self, kind: PartKind, payload: bytes) -> None:
        frame = _frame(kind.value, payload)
        self._sink.write(frame)
        self._sink.write(payload)


def read_parts(source: Readable) -> Iterator[tuple[PartKind, bytes]]:
    """The parts of a stream but for the last; raises FormatError unless it is whole and sound."""
    claim_count = 0
    while True:
        kind, payload = _read_part(source)
        if kind is PartKind.END:
            if payload != _TOTAL.pack(claim_count):
                raise FormatError("a stream of claims has another number than its end says")
            return
        if kind is PartKind.CLAIMS:
            claim_count += len(ClaimBlock.decode(payload))
        yield kind, payload


def decode_damaged_keys(payload: bytes) -> list[bytes]:
    """Keys in a part of kind DAMAGED_KEYS."""
    keys = []
    position = 0
    while position < len(payload):
        start = position + _KEY.size
        position = start + _KEY.unpack_from(payload, position)[0]
        keys.append(payload[start:position])
    return keys


def _frame(kind: bytes, payload: bytes) -> bytes:
    sized = struct.pack("<4sI", kind, len(payload))
    return _FRAME.pack(kind, len(payload), checksum(sized) ^ checksum(payload))


def _read_part(source: Readable) -> tuple[PartKind, bytes]:
    frame = source.read(_FRAME.size)
    if len(frame) != _FRAME.size:
        raise FormatError("a stream of claims was cut off")
    kind, byte_count, _ = _FRAME.unpack(frame)
    if byte_count > PART_BYTES_MAX:
        raise FormatError(f"a part of {byte_count} bytes in a stream of claims")
    payload = source.read(byte_count)
    if len(payload) != byte_count or _frame(kind, payload) != frame:
        raise FormatError("a damaged part in a stream of claims")
    try:
        return PartKind(kind), payload
    except ValueError as error:
        raise FormatError("an unknown part in a stream of claims") from error
