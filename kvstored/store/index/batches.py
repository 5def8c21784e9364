"""Walking a table of the index in parts, each in a transaction of its own."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import lt
from pathlib import Path
from typing import Any

import lmdb

from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import part_count, part_key
from kvstored.store.index.entry import Table
from kvstored.store.index.failure import miscounted, out_of_order
from kvstored_contract.limits import LAYERS_MAX

WALK_ENTRIES = 4096
WALK_BYTES = 4 * 1024 * 1024
"""A walk reads this much in one transaction: a long one would keep LMDB from reusing pages."""
SCAN_ENTRIES = 65536
"""Entries that a scan takes at once."""

Entry = tuple[bytes, bytes]
Batch = tuple[tuple[bytes, ...], tuple[bytes, ...]]
"""Keys and values of some entries."""


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


def next_checked_entries(
    transaction: "lmdb.Transaction[bytes]", start: bytes, sizes: tuple[int, int]
) -> list[Entry]:
    """The next SCAN_ENTRIES entries from ``start`` on of a table of alike entries.

    ``sizes`` are the bytes of each key and of each value. Raises CorruptedError when look-ups
    do not find the entries: those go by the keys on the upper pages of the tree, which a walk
    does not compare. An entry of another length is damage of its page, where LMDB would move
    its neighbours by that length when it is deleted.
    """
    cursor = transaction.cursor()
    found = cursor.set_range(start) if start else cursor.first()
    entries = list(islice(cursor, SCAN_ENTRIES)) if found else []
    if {(len(key), len(value)) for key, value in entries} - {sizes}:
        raise lmdb.CorruptedError("entries of a table have other lengths than all others")
    # A look-up that stays on the page of the last one does not ask the pages above: coming
    # from both sides, the first and the last entry of every page do.
    for ordered in (entries, entries[::-1]):
        if cursor.getmulti([key for key, _ in ordered]) != ordered:
            raise lmdb.CorruptedError("entries that a walk meets are not found by their keys")
    return entries


def counted(
    path: Path, table: Table, claimed_count: int, entries: Iterable[Entry]
) -> Iterator[Entry]:
    """The entries of a table; raises IndexDamagedError when they are not as many as claimed."""
    walked_count = 0
    for entry in entries:
        walked_count += 1
        yield entry
    if walked_count != claimed_count:
        raise miscounted(path, table, walked_count, claimed_count)


def ordered_batches(
    path: Path, table: Table, claimed_count: int, read: Callable[[bytes], list[Entry]]
) -> Iterator[Batch]:
    """A whole table in key order; ``read`` gives the next entries from a key on.

    Raises IndexDamagedError when it is out of order or has not as many entries as it claims.
    """
    walked_count, last = 0, b""
    while entries := read(last + b"\0" if last else b""):
        keys, values = zip(*entries, strict=True)
        if keys[0] <= last or not all(map(lt, keys, keys[1:])):
            raise out_of_order(path, table)
        last = keys[-1]
        walked_count += len(entries)
        yield keys, values
    if walked_count != claimed_count:
        raise miscounted(path, table, walked_count, claimed_count)


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
