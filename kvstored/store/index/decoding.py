"""From values of the index to what they mean: what does not match its checksum is absent."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import join_parts

Value = TypeVar("Value")


class IndexDecoding:
    """Decodes values, and counts those that are damaged. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.damaged_count = 0

    def decoded(
        self, decode: Callable[[bytes, bytes], Value], key: bytes, value: bytes | None
    ) -> Value | None:
        """What ``decode`` makes of an entry; None where there is none, or it raises FormatError."""
        if value is None:
            return None
        try:
            return decode(key, value)
        except FormatError:
            self._count_damage()
            return None

    def record(self, chunk: ChunkId, value: bytes | None) -> ChunkRecord | None:
        """The record of a chunk; None when there is none, or it is damaged."""
        if value is None:
            return None
        try:
            return ChunkRecord.decode(chunk, value)
        except FormatError:
            self._count_damage()
            return None

    def lengths(
        self, chunk: ChunkId, record: ChunkRecord, values: Sequence[bytes]
    ) -> tuple[int, ...] | None:
        """Lengths of slices from all parts of a chunk; None where they are not this record's."""
        if not values:
            return None
        try:
            found = join_parts(chunk, values)
        except FormatError:
            self._count_damage()
            return None
        return found.lengths if found.header_checksum == record.header_checksum else None

    def _count_damage(self) -> None:
        with self._lock:
            self.damaged_count += 1
