"""The opened tables of an index: what look-ups, walks and changes of it share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import lmdb

from kvstored.store.index.decoding import IndexDecoding
from kvstored.store.index.entry import Table
from kvstored.store.index.environment import DATA_FILE, open_tables
from kvstored.store.index.health import IndexHealth
from kvstored.store.index.pages import MappedPages


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
