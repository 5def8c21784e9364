"""Walking a table of the index in parts, each in a transaction of its own."""

from itertools import islice
from typing import Any

import lmdb

from kvstored.format.chunk_record import RECORD_BYTES
from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.format.slice_lengths import part_count, part_key
from kvstored_contract.limits import LAYERS_MAX

WALK_ENTRIES = 4096
WALK_BYTES = 4 * 1024 * 1024
"""A walk reads this much in one transaction: a long one would keep LMDB from reusing pages."""
SCAN_ENTRIES = 65536
"""Chunks that a scan takes at once."""

Entry = tuple[bytes, bytes]


def next_entries(transaction: "lmdb.Transaction[bytes]", start: bytes) -> tuple[list[Entry], bool]:
    """Some entries of the transaction's table from ``start`` on; whether they are the last."""
    entries: list[Entry] = []
    batch_bytes = 0
    cursor = transaction.cursor()
    if not (cursor.set_range(start) if start else cursor.first()):
        return entries, True
    for key, value in cursor:
        entries.append((key, value))
        batch_bytes += len(value)
        if len(entries) == WALK_ENTRIES or batch_bytes >= WALK_BYTES:
            return entries, False
    return entries, True


def next_chunk_entries(transaction: "lmdb.Transaction[bytes]", start: bytes) -> list[Entry]:
    """The next SCAN_ENTRIES entries of the chunk table from ``start`` on.

    Raises CorruptedError when look-ups do not find them: those go by the keys on the upper
    pages of the tree, which a walk does not compare. An entry of another length is damage of
    its page, where LMDB would move its neighbours by that length when it is deleted.
    """
    cursor = transaction.cursor()
    found = cursor.set_range(start) if start else cursor.first()
    entries = list(islice(cursor, SCAN_ENTRIES)) if found else []
    if {(len(key), len(value)) for key, value in entries} - {(CHUNK_ID_BYTES, RECORD_BYTES)}:
        raise lmdb.CorruptedError("entries of the chunk table have other lengths")
    # A look-up that stays on the page of the last one does not ask the pages above: coming
    # from both sides, the first and the last entry of every page do.
    for ordered in (entries, entries[::-1]):
        if cursor.getmulti([key for key, _ in ordered]) != ordered:
            raise lmdb.CorruptedError("entries that a walk meets are not found by their keys")
    return entries


def chunk_parts(
    transaction: "lmdb.Transaction[bytes]", database: Any, chunk: ChunkId
) -> list[bytes]:
    """The lengths of a chunk's slices: values of all parts, in order."""
    values: list[bytes] = []
    for number in range(part_count(LAYERS_MAX)):
        value = transaction.get(part_key(chunk, number), db=database)
        if value is None:
            break
        values.append(value)
    return values
