"""Walking a table of the index in parts, each in a transaction of its own."""

from itertools import islice

import lmdb

WALK_ENTRIES = 4096
WALK_BYTES = 4 * 1024 * 1024
"""A walk reads this much in one transaction: a long one would keep LMDB from reusing pages."""
SCAN_ENTRIES = 65536
"""Entries of one size that a scan takes at once."""

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


def next_small_entries(transaction: "lmdb.Transaction[bytes]", start: bytes) -> list[Entry]:
    """The next SCAN_ENTRIES entries from ``start`` on, which are known to be small."""
    cursor = transaction.cursor()
    found = cursor.set_range(start) if start else cursor.first()
    return list(islice(cursor, SCAN_ENTRIES)) if found else []
