"""A change of the index inside one LMDB transaction."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import lmdb

from kvstored.format import layout_record
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import part_count, part_key
from kvstored.store.index.change import IndexChange
from kvstored.store.index.entry import (
    META_KEY,
    Table,
    encode_quarantine,
    quarantine_key,
    sequence_key,
)


class EncodedChange:
    """A change whose values are bytes already: what can be refused was refused before.

    Raises ValueError for a sequence name that cannot be stored.
    """

    def __init__(self, change: IndexChange) -> None:
        self._change = change
        self._sequence_puts = [
            (key, record.encode(key))
            for namespace_id, name, record in change.sequence_puts
            for key in (sequence_key(namespace_id, name),)
        ]
        self._sequence_deletes = [sequence_key(*name) for name in change.sequence_deletes]

    def apply(self, transaction: "lmdb.Transaction[bytes]", tables: Mapping[Table, Any]) -> None:
        """Does all of it, in the order of the fields."""
        change = self._change
        self._apply_chunks(transaction, tables)
        layouts = [(layout.layout_id, layout_record.encode(layout)) for layout in change.layouts]
        _put(transaction, tables[Table.LAYOUTS], layouts)
        _delete(transaction, tables[Table.SEQUENCES], self._sequence_deletes)
        _put(transaction, tables[Table.SEQUENCES], self._sequence_puts)
        if change.meta is not None:
            _put(transaction, tables[Table.META], [(META_KEY, change.meta.encode())])

    def _apply_chunks(
        self, transaction: "lmdb.Transaction[bytes]", tables: Mapping[Table, Any]
    ) -> None:
        change, chunks, lengths = self._change, tables[Table.CHUNKS], tables[Table.LENGTHS]
        _delete(transaction, chunks, [chunk.encode() for chunk in change.deletes])
        gone = [(chunk, 0) for chunk in change.deletes]
        for chunk, record in change.quarantines:
            # The chunk may have been stored again elsewhere: that entry stays.
            if transaction.get(chunk.encode(), db=chunks) == record.encode(chunk):
                transaction.delete(chunk.encode(), db=chunks)
                gone.append((chunk, 0))
        # A chunk that is stored again, by another layout perhaps, may have had more parts.
        counts = {chunk: part_count(len(one.lengths)) for chunk, one in change.lengths}
        gone += [(chunk, counts.get(chunk, 0)) for chunk, _ in change.puts]
        _delete_lengths(transaction, lengths, gone)
        quarantines = [
            (quarantine_key(record.extent), encode_quarantine(chunk, record))
            for chunk, record in change.quarantines
        ]
        _put(transaction, tables[Table.QUARANTINE], quarantines)
        releases = [quarantine_key(extent) for extent in change.releases]
        _delete(transaction, tables[Table.QUARANTINE], releases)
        _put(
            transaction,
            chunks,
            [(chunk.encode(), record.encode(chunk)) for chunk, record in change.puts],
        )
        parts = [part for chunk, one in change.lengths for part in one.parts(chunk)]
        _put(transaction, lengths, parts)


def _put(
    transaction: "lmdb.Transaction[bytes]", database: Any, entries: list[tuple[bytes, bytes]]
) -> None:
    if entries:
        transaction.cursor(database).putmulti(entries)


def _delete(transaction: "lmdb.Transaction[bytes]", database: Any, keys: list[bytes]) -> None:
    for key in keys:
        transaction.delete(key, db=database)


def _delete_lengths(
    transaction: "lmdb.Transaction[bytes]", database: Any, firsts: list[tuple[ChunkId, int]]
) -> None:
    """Drops the parts of these chunks, from one each on; costs nothing while none is encoded."""
    if not firsts or not transaction.stat(database)["entries"]:
        return
    for chunk, first in firsts:
        numbers = count(first)
        while transaction.delete(part_key(chunk, next(numbers)), db=database):
            pass
