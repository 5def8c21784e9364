"""The opened tables of an index, their entries decoded: what look-ups, walks and changes share."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import lmdb

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import join_parts
from kvstored.store.index.entry import Table
from kvstored.store.index.environment import DATA_FILE, open_tables
from kvstored.store.index.health import IndexHealth
from kvstored.store.index.pages import MappedPages

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


class TableSize(NamedTuple):
    """A table as LMDB counts it."""

    entry_count: int
    used_bytes: int


class IndexTables:
    """An LMDB environment with its tables, its health and its decoding. Thread-safe.

    ``handles`` are LMDB's of the tables that are there. ``map_bytes`` is what they may take.
    """

    def __init__(
        self, environment: lmdb.Environment, path: Path, *, map_bytes: int, readonly: bool
    ) -> None:
        self.environment = environment
        self.path = path
        self.map_bytes = map_bytes
        self.handles: dict[Table, Any] = open_tables(environment, readonly=readonly)
        self.pages = MappedPages(path / DATA_FILE)
        self.health = IndexHealth(path, map_bytes=self.map_bytes, readonly=readonly)
        self.decoding = IndexDecoding()

    @contextmanager
    def reading(self, table: Table | None = None) -> "Iterator[lmdb.Transaction[bytes]]":
        """A snapshot, of ``table`` where none is named; raises IndexFailure."""
        try:
            with self.environment.begin(None if table is None else self.handles[table]) as one:
                yield one
        except lmdb.Error as error:
            raise self.health.unreadable(error) from error

    def size(self, table: Table) -> TableSize:
        """How much a table has and takes. Raises IndexFailure."""
        if table not in self.handles:
            return TableSize(entry_count=0, used_bytes=0)
        with self.reading() as transaction:
            stat = transaction.stat(self.handles[table])
        page_count = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return TableSize(entry_count=stat["entries"], used_bytes=page_count * stat["psize"])
