"""The index: which chunks are stored and where, in LMDB with every commit synchronous.

Invariants: ``apply`` returns after its one transaction is on media, or raises and
nothing of it happened or the index is failed; a value that does not match its
checksum is absent; after the first LMDB error in a transaction no further one is
attempted, because LMDB's next commit after a failed sync would succeed.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import lmdb

from kvstored.format import layout_record
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.batches import chunk_parts
from kvstored.store.index.change import IndexChange
from kvstored.store.index.directory import sync_directory
from kvstored.store.index.entry import META_KEY, Table, sequence_key
from kvstored.store.index.environment import DATA_FILE, READERS_MAX, open_environment
from kvstored.store.index.failure import (
    IndexDamagedError,
    IndexFailure,
    IndexFullError,
    failure_of,
)
from kvstored.store.index.index_lock import IndexLock
from kvstored.store.index.meta import IndexMeta
from kvstored.store.index.tables import IndexTables
from kvstored.store.index.transaction import EncodedChange
from kvstored.store.index.usage import IndexUsage
from kvstored.store.index.walks import IndexWalks
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


class Index:
    """Look-ups and changes in the tables of one store.

    ``walks`` go over whole tables, ``usage`` says how full they are.

    Every method may be called from any thread. Reading raises IndexFailure where LMDB itself
    cannot read.
    """

    def __init__(
        self, environment: lmdb.Environment, path: Path, *, map_bytes: int, readonly: bool
    ) -> None:
        self.path = path
        self._tables = IndexTables(environment, path, map_bytes=map_bytes, readonly=readonly)
        self.walks = IndexWalks(self._tables)
        self.usage = IndexUsage(self._tables)
        self._decoding = self._tables.decoding
        self._write_lock = threading.Lock()
        self.lock: IndexLock | None = None
        """That of its directory, which a service takes before it opens it; goes with ``close``."""

    @classmethod
    def open(cls, path: Path | str, *, map_bytes: int, readonly: bool = False) -> Self:
        """Opens the index in directory ``path``; creates it unless ``readonly``.

        ``map_bytes`` bounds its size, but for what deletions need. Raises IndexFailure. A damaged
        file can end the process with SIGBUS: ``service`` knows when to look first.
        """
        directory = Path(path)
        try:
            environment = open_environment(directory, map_bytes=map_bytes, readonly=readonly)
            try:
                index = cls(environment, directory, map_bytes=map_bytes, readonly=readonly)
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
    def is_failed(self) -> bool:
        """Whether a write has failed, so that every later one is refused."""
        return self._tables.health.failure is not None

    @property
    def revision(self) -> int:
        """A number that every change of the index makes larger."""
        return int(self._tables.environment.info()["last_txnid"])

    def get(self, chunk: ChunkId) -> ChunkRecord | None:
        """The record of a chunk; None when it is absent or damaged."""
        return self.get_many((chunk,))[0]

    def get_many(self, chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
        """Records of ``chunks`` in their order, as ``get``, from one snapshot."""
        with self._tables.reading(Table.CHUNKS) as transaction:
            values = [transaction.get(chunk.encode()) for chunk in chunks]
        self._tables.pages.touched(len(chunks))
        return [
            self._decoding.record(chunk, value) for chunk, value in zip(chunks, values, strict=True)
        ]

    def lengths(
        self, entries: Sequence[tuple[ChunkId, ChunkRecord]]
    ) -> list[tuple[int, ...] | None]:
        """Length of each slice of encoded chunks; None where it is absent or damaged.

        What was stored with another record of the same chunk is absent.
        """
        if Table.LENGTHS not in self._tables.handles:
            return [None] * len(entries)
        with self._tables.reading() as transaction:
            table = self._tables.handles[Table.LENGTHS]
            found = [chunk_parts(transaction, table, chunk) for chunk, _ in entries]
        self._tables.pages.touched(sum(map(len, found)))
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
            self._write(lambda transaction: encoded.apply(transaction, self._tables.handles))
        except IndexFullError:
            # What else a change holds, a long sequence say, tells nothing of the chunks.
            if change.puts and not change.sequence_puts:
                self.usage.was_full()
            raise
        touched_count = len(change.deletes) + len(change.quarantines) + len(change.puts)
        self._tables.pages.touched(touched_count)

    def clear_chunks(self) -> None:
        """Drops meta data, chunks, lengths and quarantine, durably: the start of a rebuild."""

        def run(transaction: "lmdb.Transaction[bytes]") -> None:
            for table in (Table.META, Table.CHUNKS, Table.LENGTHS, Table.QUARANTINE):
                transaction.drop(self._tables.handles[table], delete=False)

        self._write(run)

    def layout(self, layout_id: bytes) -> StateLayout | None:
        """The layout with this id (32 bytes); None when it is absent or damaged."""
        value = self._get(Table.LAYOUTS, layout_id)
        return self._decoding.decoded(layout_record.decode, layout_id, value)

    def sequence(self, namespace_id: bytes, name: str) -> SequenceRecord | None:
        """A sequence; None when it is absent or damaged. Raises ValueError for a bad name."""
        key = sequence_key(namespace_id, name)
        value = self._get(Table.SEQUENCES, key)
        return self._decoding.decoded(SequenceRecord.decode, key, value)

    def meta(self) -> IndexMeta | None:
        """What the index knows of itself; None while it is new, being rebuilt, or damaged."""
        value = self._get(Table.META, META_KEY)
        return self._decoding.decoded(lambda _, encoded: IndexMeta.decode(encoded), META_KEY, value)

    def close(self) -> None:
        """Closes the environment; no other method may be called afterwards."""
        try:
            self._tables.pages.close()
            with self._write_lock:
                self._tables.environment.close()
        finally:
            if self.lock is not None:
                self.lock.release()

    def _write(self, run: Callable[["lmdb.Transaction[bytes]"], None]) -> None:
        tables = self._tables
        with self._write_lock, tables.health.writing():
            with tables.environment.begin(write=True) as transaction:
                run(transaction)
                lengths_count = transaction.stat(tables.handles[Table.LENGTHS])["entries"]
            self.usage.lengths_count = lengths_count

    def _get(self, table: Table, key: bytes) -> bytes | None:
        with self._tables.reading(table) as transaction:
            return transaction.get(key)
