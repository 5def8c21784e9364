"""Writing into a table of an index past everything that keeps it sound."""

import lmdb

from kvstored.store.index.entry import Table
from kvstored.store.index.index import Index


def raw_write(index: Index, table: Table) -> "lmdb.Transaction[bytes]":
    """A write transaction of one table; a context manager."""
    tables = index._tables
    return tables.environment.begin(tables.handles[table], write=True)
