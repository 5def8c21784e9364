"""What the index holds, and for how much more it has room."""

from kvstored.store.index.entry import Table
from kvstored.store.index.environment import used_bytes
from kvstored.store.index.room import IndexRoom
from kvstored.store.index.tables import IndexTables


class IndexUsage:
    """Entries and bytes as LMDB counts them now. Thread-safe; raises IndexFailure.

    ``lengths_count`` is how many parts of lengths there were after the last change: looks at the
    room, of which there are many, need not ask for it.
    """

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables
        self._room = IndexRoom(tables.map_bytes)
        self.lengths_count = self.entry_count(Table.LENGTHS)

    @property
    def chunk_count(self) -> int:
        """Entries of the chunk table, damaged ones included."""
        return self.entry_count(Table.CHUNKS)

    def entry_count(self, table: Table) -> int:
        """Entries of one table, damaged ones included."""
        return self._tables.size(table).entry_count

    @property
    def is_short(self) -> bool:
        """Whether chunks must go before others come: soon the map would be full."""
        is_surely_enough = self._room.is_surely_enough(self.chunk_count, self.lengths_count)
        return not is_surely_enough and self.left_chunks <= 0

    @property
    def left_chunks(self) -> int:
        """For how many more chunks the map has room; below zero so many must go."""
        return self._room.left_chunks(self.chunk_count, self._others_bytes(), self.lengths_count)

    @property
    def left_others_bytes(self) -> int:
        """What the tables that are not of chunks may still grow by; below zero none may."""
        return self._room.others_bytes_max - self._others_bytes()

    @property
    def unused_bytes(self) -> int:
        """Of the map, what no page has ever taken."""
        environment = self._tables.environment
        return int(environment.info()["map_size"]) - used_bytes(environment)

    def was_full(self) -> None:
        """Hears that LMDB had no room for another chunk."""
        self._room.was_full(self.chunk_count, self._others_bytes(), self.lengths_count)

    def _others_bytes(self) -> int:
        of_chunks = (Table.CHUNKS, Table.LENGTHS)
        return sum(self._tables.size(table).used_bytes for table in Table if table not in of_chunks)
