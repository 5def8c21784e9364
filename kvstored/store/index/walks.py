"""Walks over whole tables of the index: for recovery, checks, and lists."""

from collections.abc import Iterable, Iterator

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import NAMESPACE_ID_BYTES, ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths_parts import damaged_parts
from kvstored.store.index.batches import (
    Batch,
    Entry,
    counted,
    next_checked_entries,
    next_entries,
    ordered_batches,
)
from kvstored.store.index.entry import (
    ENTRY_SIZES,
    VERIFY,
    Table,
    decode_quarantine,
    decode_sequence,
    sequence_name,
    verified_sequence_name,
)
from kvstored.store.index.failure import out_of_order
from kvstored.store.index.tables import IndexTables
from kvstored_contract.limits import KEY_BYTES

_PAGE_BYTES = 4096
_ENTRIES_PER_PAGE = 16
"""About so many records share a page."""


_AFTER_KEYS = b"\xff" * (KEY_BYTES + 1)
"""Added to a namespace: greater than every key of it."""


def whole_bytes(key_prefix: str) -> bytes:
    """The whole bytes at the beginning of hexadecimal digits."""
    return bytes.fromhex(key_prefix[: len(key_prefix) // 2 * 2])


class IndexWalks:
    """Walks the tables of one index. Every method may be called from any thread.

    Each batch of a walk is a snapshot of its own: what is put or deleted meanwhile may or may
    not appear. Raises IndexFailure where LMDB itself cannot read.
    """

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables
        self._decoding = tables.decoding

    def entries(self) -> Iterator[tuple[ChunkId, ChunkRecord | None]]:
        """Every entry of the chunk table in key order, with None for a damaged record."""
        for key, value in self._walk(Table.CHUNKS):
            chunk = ChunkId.decode(key)
            yield chunk, self._decoding.record(chunk, value)

    def records(self) -> Iterator[tuple[ChunkId, ChunkRecord]]:
        """As ``entries``, without the damaged ones."""
        return ((chunk, record) for chunk, record in self.entries() if record is not None)

    def records_by_prefix(
        self, key_prefix: str, namespace_id: bytes | None = None
    ) -> Iterator[tuple[ChunkId, ChunkRecord]]:
        """Chunks whose keys begin with some hexadecimal digits, of one namespace or of all.

        A namespace without one costs a look-up: the table is ordered by namespace, then key.
        """
        for start in self._starts(whole_bytes(key_prefix), namespace_id):
            for key, value in self._walk(Table.CHUNKS, start):
                chunk = ChunkId.decode(key)
                record = self._decoding.record(chunk, value)
                if record is not None and chunk.key.hex().startswith(key_prefix):
                    yield chunk, record

    def _starts(self, prefix: bytes, namespace_id: bytes | None) -> Iterator[bytes]:
        """Namespaces in the chunk table with a key that begins so, each followed by the prefix."""
        if namespace_id is not None:
            yield namespace_id + prefix
            return
        start = b"\0"
        while (key := self._key_from(Table.CHUNKS, start)) is not None:
            wanted = key[:NAMESPACE_ID_BYTES] + prefix
            if key < start:
                raise self._tables.health.damaged(out_of_order(self._tables.path, Table.CHUNKS))
            if key.startswith(wanted):
                yield wanted
            start = wanted if key < wanted else key[:NAMESPACE_ID_BYTES] + _AFTER_KEYS

    def _key_from(self, table: Table, start: bytes) -> bytes | None:
        """The first key of a table from ``start`` on."""
        if table not in self._tables.handles:
            return None
        with self._tables.reading(table) as transaction:
            cursor = transaction.cursor()
            return cursor.key() if cursor.set_range(start) else None

    def chunk_batches(self) -> Iterator[Batch]:
        """Keys and values of the whole chunk table, unverified, in key order.

        Raises IndexDamagedError when the table is out of order or has not as many entries as
        it claims, if nobody changes it meanwhile, when an entry has another length than all
        others, or look-ups do not find it.
        """
        return self._checked_batches(Table.CHUNKS)

    def quarantined(self) -> Iterator[tuple[ChunkId, ChunkRecord]]:
        """Chunks in quarantine by device and offset; damaged entries are skipped and counted."""
        for key, value in self._walk(Table.QUARANTINE):
            entry = self._decoding.decoded(decode_quarantine, key, value)
            if entry is not None:
                yield entry

    def sequences(self, namespace_id: bytes) -> list[str]:
        """Names of a namespace's sequences in byte order, without damaged ones."""
        names = (
            self._decoding.decoded(verified_sequence_name, key, value)
            for key, value in self._walk(Table.SEQUENCES, namespace_id)
        )
        return [name for name in names if name is not None]

    def sequence_records(self) -> Iterator[tuple[bytes, SequenceRecord]]:
        """Every sequence: its namespace id and its record, without damaged ones."""
        for key, value in self._walk(Table.SEQUENCES):
            entry = self._decoding.decoded(decode_sequence, key, value)
            if entry is not None:
                yield entry

    def named_sequences(self) -> Iterator[tuple[bytes, str, SequenceRecord]]:
        """Every sequence: namespace id, name and record, without damaged ones."""
        for key, value in self._walk(Table.SEQUENCES):
            entry = self._decoding.decoded(decode_sequence, key, value)
            if entry is not None:
                yield entry[0], sequence_name(key), entry[1]

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

    def _walk(self, table: Table, prefix: bytes = b"") -> Iterator[Entry]:
        """Entries whose key starts with ``prefix``."""
        start, is_last = prefix, table not in self._tables.handles
        while not is_last:
            batch, is_last = self._batch(table, start)
            for key, value in batch:
                if not key.startswith(prefix):
                    return
                # A damaged tree can lead in a circle.
                if key < start:
                    raise self._tables.health.damaged(out_of_order(self._tables.path, table))
                start = key + b"\0"
                yield key, value

    def _counted(self, table: Table) -> Iterator[Entry]:
        claimed_count = self._tables.size(table).entry_count
        return counted(self._tables.path, table, claimed_count, self._walk(table))

    def _suspect_parts(self) -> Iterator[Entry]:
        for keys, values in self._checked_batches(Table.LENGTHS):
            yield from ((keys[place], values[place]) for place in damaged_parts(keys, values))

    def _checked_batches(self, table: Table) -> Iterator[Batch]:
        """As ``chunk_batches``, of any table whose entries are alike."""
        if table not in self._tables.handles:
            return iter(())

        def read(start: bytes) -> list[Entry]:
            with self._tables.reading(table) as transaction:
                entries = next_checked_entries(transaction, start, ENTRY_SIZES[table])
            if entries:
                self._tables.pages.touched(len(entries) // _ENTRIES_PER_PAGE + 1)
            return entries

        claimed_count = self._tables.size(table).entry_count
        return ordered_batches(self._tables.path, table, claimed_count, read)

    def _batch(self, table: Table, start: bytes) -> tuple[list[Entry], bool]:
        """Some entries from ``start`` on, and whether they are the last ones."""
        with self._tables.reading(table) as transaction:
            entries, is_last = next_entries(transaction, start)
        # A long record has pages of its own.
        own_pages = sum(len(value) // _PAGE_BYTES for _, value in entries)
        self._tables.pages.touched(len(entries) // _ENTRIES_PER_PAGE + 1 + own_pages)
        return entries, is_last
