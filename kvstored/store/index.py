"""The index: which chunks are stored and where, in LMDB with every commit synchronous.

Invariants: ``apply`` returns after its one transaction is on media, or raises and
nothing of it happened or the index is failed; a value that does not match its
checksum is absent; after the first LMDB error in a transaction no further one is
attempted, because LMDB's next commit after a failed sync would succeed.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import lmdb

from kvstored.format import layout_record
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths_parts import damaged_parts
from kvstored.store.directory import sync_directory
from kvstored.store.index_change import IndexChange
from kvstored.store.index_decoding import IndexDecoding
from kvstored.store.index_entry import (
    ENTRY_SIZES,
    META_KEY,
    VERIFY,
    Table,
    decode_quarantine,
    sequence_key,
    verified_sequence_name,
)
from kvstored.store.index_environment import (
    DATA_FILE,
    READERS_MAX,
    open_environment,
    open_tables,
)
from kvstored.store.index_failure import (
    IndexDamagedError,
    IndexFailure,
    IndexFullError,
    failure_of,
    out_of_order,
)
from kvstored.store.index_health import IndexHealth
from kvstored.store.index_meta import IndexMeta
from kvstored.store.index_pages import MappedPages
from kvstored.store.index_room import IndexRoom
from kvstored.store.index_transaction import EncodedChange
from kvstored.store.index_walk import (
    Batch,
    Entry,
    chunk_parts,
    counted,
    next_checked_entries,
    next_entries,
    ordered_batches,
)
from kvstored_contract.layout import StateLayout

__all__ = [
    "DATA_FILE",
    "READERS_MAX",
    "Index",
    "IndexChange",
    "IndexDamagedError",
    "IndexFailure",
    "IndexMeta",
]

_ENTRIES_PER_PAGE = 16
"""About so many records share a page."""


class TableSize(NamedTuple):
    """A table as LMDB counts it."""

    entry_count: int
    used_bytes: int


class Index:
    """The tables of one store. Every method may be called from any thread.

    Reading raises IndexFailure where LMDB itself cannot read.
    """

    def __init__(self, environment: lmdb.Environment, path: Path, *, readonly: bool) -> None:
        self._environment = environment
        self.path = path
        self._tables = open_tables(environment, readonly=readonly)
        self._pages = MappedPages(path / DATA_FILE)
        map_bytes = environment.info()["map_size"]
        self._room = IndexRoom(map_bytes)
        self._health = IndexHealth(path, map_bytes=map_bytes, readonly=readonly)
        self._write_lock = threading.Lock()
        self._decoding = IndexDecoding()
        self._lengths_count = self.entry_count(Table.LENGTHS)

    @classmethod
    def open(cls, path: Path | str, *, map_bytes: int, readonly: bool = False) -> Self:
        """Opens the index in directory ``path``; creates it unless ``readonly``.

        ``map_bytes`` bounds its size. Raises IndexFailure. A damaged file can end the
        process with SIGBUS: ``index_service`` knows when to look first.
        """
        directory = Path(path)
        try:
            environment = open_environment(directory, map_bytes=map_bytes, readonly=readonly)
            try:
                index = cls(environment, directory, readonly=readonly)
            except (lmdb.Error, IndexFailure):
                environment.close()
                raise
        except (lmdb.Error, OSError) as error:
            raise failure_of(f"cannot open the index in {directory}: {error}", error) from error
        if not readonly:
            # LMDB syncs its file but not the directories that hold it.
            sync_directory(directory)
            sync_directory(directory.parent)
        return index

    @property
    def damaged_records(self) -> int:
        """How often a value did not match its checksum."""
        return self._decoding.damaged_count

    @property
    def is_failed(self) -> bool:
        """Whether a write has failed, so that every later one is refused."""
        return self._health.failure is not None

    @property
    def chunk_count(self) -> int:
        """Entries of the chunk table, damaged ones included."""
        return self.entry_count(Table.CHUNKS)

    @property
    def sequence_count(self) -> int:
        """Entries of the sequence table, damaged ones included."""
        return self.entry_count(Table.SEQUENCES)

    def entry_count(self, table: Table) -> int:
        """Entries of one table as LMDB counts them."""
        return self._size(table).entry_count

    @property
    def is_short(self) -> bool:
        """Whether chunks must go before others come: soon the map would be full."""
        is_surely_enough = self._room.is_surely_enough(self.chunk_count, self._lengths_count)
        return not is_surely_enough and self.left_chunks <= 0

    @property
    def left_chunks(self) -> int:
        """For how many more chunks the map has room; below zero so many must go."""
        return self._room.left_chunks(self.chunk_count, self._others_bytes(), self._lengths_count)

    @property
    def left_others_bytes(self) -> int:
        """What the tables that are not of chunks may still grow by; below zero none may."""
        return self._room.others_bytes_max - self._others_bytes()

    @property
    def unused_bytes(self) -> int:
        """Of the map, what no page has ever taken."""
        info = self._environment.info()
        return int(info["map_size"] - (info["last_pgno"] + 1) * self._environment.stat()["psize"])

    @property
    def revision(self) -> int:
        """A number that every change of the index makes larger."""
        return int(self._environment.info()["last_txnid"])

    def get(self, chunk: ChunkId) -> ChunkRecord | None:
        """The record of a chunk; None when it is absent or damaged."""
        return self.get_many((chunk,))[0]

    def get_many(self, chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
        """Records of ``chunks`` in their order, as ``get``, from one snapshot."""
        try:
            with self._environment.begin(self._tables[Table.CHUNKS]) as transaction:
                values = [transaction.get(chunk.encode()) for chunk in chunks]
        except lmdb.Error as error:
            raise self._health.unreadable(error) from error
        self._pages.touched(len(chunks))
        return [
            self._decoding.record(chunk, value) for chunk, value in zip(chunks, values, strict=True)
        ]

    def lengths(
        self, entries: Sequence[tuple[ChunkId, ChunkRecord]]
    ) -> list[tuple[int, ...] | None]:
        """Length of each slice of encoded chunks; None where it is absent or damaged.

        What was stored with another record of the same chunk is absent.
        """
        if Table.LENGTHS not in self._tables:
            return [None] * len(entries)
        try:
            with self._environment.begin() as transaction:
                table = self._tables[Table.LENGTHS]
                found = [chunk_parts(transaction, table, chunk) for chunk, _ in entries]
        except lmdb.Error as error:
            raise self._health.unreadable(error) from error
        self._pages.touched(sum(map(len, found)))
        return [
            self._decoding.lengths(chunk, record, values)
            for (chunk, record), values in zip(entries, found, strict=True)
        ]

    def apply(self, change: IndexChange) -> None:
        """Makes a change durable in one transaction; raises IndexFailure, which is sticky.

        Raises ValueError, and nothing is changed, for a sequence name that cannot be stored.
        """
        encoded = EncodedChange(change)
        try:
            self._write(lambda transaction: encoded.apply(transaction, self._tables))
        except IndexFullError:
            # What else a change holds, a long sequence say, tells nothing of the chunks.
            if change.puts and not change.sequence_puts:
                others_bytes = self._others_bytes()
                self._room.was_full(self.chunk_count, others_bytes, self._lengths_count)
            raise
        self._pages.touched(len(change.deletes) + len(change.quarantines) + len(change.puts))

    def clear_chunks(self) -> None:
        """Drops meta data, chunks, lengths and quarantine, durably: the start of a rebuild."""

        def run(transaction: "lmdb.Transaction[bytes]") -> None:
            for table in (Table.META, Table.CHUNKS, Table.LENGTHS, Table.QUARANTINE):
                transaction.drop(self._tables[table], delete=False)

        self._write(run)

    def entries(self) -> Iterator[tuple[ChunkId, ChunkRecord | None]]:
        """Every entry of the chunk table in key order, with None for a damaged record.

        Chunks that are put or deleted meanwhile may or may not appear.
        """
        for key, value in self._walk(Table.CHUNKS):
            chunk = ChunkId.decode(key)
            yield chunk, self._decoding.record(chunk, value)

    def records(self) -> Iterator[tuple[ChunkId, ChunkRecord]]:
        """As ``entries``, without the damaged ones."""
        return ((chunk, record) for chunk, record in self.entries() if record is not None)

    def chunk_batches(self) -> Iterator[Batch]:
        """Keys and values of the whole chunk table, unverified, in key order.

        Each batch is a snapshot of its own. Raises IndexDamagedError when the table is
        out of order or has not as many entries as it claims, if nobody changes it meanwhile,
        when an entry has another length than all others, or look-ups do not find it.
        """
        return self._checked_batches(Table.CHUNKS)

    def quarantined(self) -> Iterator[tuple[ChunkId, ChunkRecord]]:
        """Chunks in quarantine by device and offset; damaged entries are skipped and counted."""
        for key, value in self._walk(Table.QUARANTINE):
            entry = self._decoding.decoded(decode_quarantine, key, value)
            if entry is not None:
                yield entry

    def layout(self, layout_id: bytes) -> StateLayout | None:
        """The layout with this id (32 bytes); None when it is absent or damaged."""
        value = self._get(Table.LAYOUTS, layout_id)
        return self._decoding.decoded(layout_record.decode, layout_id, value)

    def sequence(self, namespace_id: bytes, name: str) -> SequenceRecord | None:
        """A sequence; None when it is absent or damaged. Raises ValueError for a bad name."""
        key = sequence_key(namespace_id, name)
        value = self._get(Table.SEQUENCES, key)
        return self._decoding.decoded(SequenceRecord.decode, key, value)

    def sequences(self, namespace_id: bytes) -> list[str]:
        """Names of a namespace's sequences in byte order, without damaged ones."""
        names = (
            self._decoding.decoded(verified_sequence_name, key, value)
            for key, value in self._walk(Table.SEQUENCES, namespace_id)
        )
        return [name for name in names if name is not None]

    def meta(self) -> IndexMeta | None:
        """What the index knows of itself; None while it is new, being rebuilt, or damaged."""
        value = self._get(Table.META, META_KEY)
        return self._decoding.decoded(lambda _, encoded: IndexMeta.decode(encoded), META_KEY, value)

    def damaged_entries(
        self, tables: Iterable[Table] = tuple(Table)
    ) -> Iterator[tuple[Table, bytes, str]]:
        """Walks tables: table, key and cause of each damaged entry.

        Raises IndexFailure when LMDB cannot walk, or when a table is out of order or
        has not as many entries as it claims; for the lengths also as ``chunk_batches``.
        """
        for table in tables:
            # Lengths are looked up and deleted as chunks are, and may be as many.
            are_many = table is Table.LENGTHS
            for key, value in self._suspect_parts() if are_many else self._counted(table):
                try:
                    VERIFY[table](key, value)
                except FormatError as error:
                    yield table, key, str(error)

    def close(self) -> None:
        """Closes the environment; no other method may be called afterwards."""
        self._pages.close()
        with self._write_lock:
            self._environment.close()

    def _write(self, run: Callable[["lmdb.Transaction[bytes]"], None]) -> None:
        with self._write_lock, self._health.writing():
            with self._environment.begin(write=True) as transaction:
                run(transaction)
                lengths_count = transaction.stat(self._tables[Table.LENGTHS])["entries"]
            self._lengths_count = lengths_count

    def _others_bytes(self) -> int:
        of_chunks = (Table.CHUNKS, Table.LENGTHS)
        return sum(self._size(table).used_bytes for table in Table if table not in of_chunks)

    def _size(self, table: Table) -> TableSize:
        if table not in self._tables:
            return TableSize(entry_count=0, used_bytes=0)
        try:
            with self._environment.begin() as transaction:
                stat = transaction.stat(self._tables[table])
        except lmdb.Error as error:
            raise self._health.unreadable(error) from error
        page_count = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return TableSize(entry_count=stat["entries"], used_bytes=page_count * stat["psize"])

    def _get(self, table: Table, key: bytes) -> bytes | None:
        try:
            with self._environment.begin(self._tables[table]) as transaction:
                return transaction.get(key)
        except lmdb.Error as error:
            raise self._health.unreadable(error) from error

    def _walk(self, table: Table, prefix: bytes = b"") -> Iterator[Entry]:
        """Entries whose key starts with ``prefix``; every batch is a snapshot of its own."""
        start, is_last = prefix, table not in self._tables
        while not is_last:
            try:
                batch, is_last = self._batch(table, start)
            except lmdb.Error as error:
                raise self._health.unreadable(error) from error
            for key, value in batch:
                if not key.startswith(prefix):
                    return
                # A damaged tree can lead in a circle.
                if key < start:
                    raise self._health.damaged(out_of_order(self.path, table))
                start = key + b"\0"
                yield key, value

    def _counted(self, table: Table) -> Iterator[Entry]:
        return counted(self.path, table, self.entry_count(table), self._walk(table))

    def _suspect_parts(self) -> Iterator[Entry]:
        for keys, values in self._checked_batches(Table.LENGTHS):
            yield from ((keys[place], values[place]) for place in damaged_parts(keys, values))

    def _checked_batches(self, table: Table) -> Iterator[Batch]:
        """As ``chunk_batches``, of any table whose entries are alike."""
        if table not in self._tables:
            return iter(())

        def read(start: bytes) -> list[Entry]:
            try:
                with self._environment.begin(self._tables[table]) as transaction:
                    entries = next_checked_entries(transaction, start, ENTRY_SIZES[table])
            except lmdb.Error as error:
                raise self._health.unreadable(error) from error
            if entries:
                self._pages.touched(len(entries) // _ENTRIES_PER_PAGE + 1)
            return entries

        return ordered_batches(self.path, table, self.entry_count(table), read)

    def _batch(self, table: Table, start: bytes) -> tuple[list[Entry], bool]:
        """Some entries from ``start`` on, and whether they are the last ones."""
        with self._environment.begin(self._tables[table]) as transaction:
            entries, is_last = next_entries(transaction, start)
        self._pages.touched(len(entries) // _ENTRIES_PER_PAGE + 1)
        return entries, is_last
