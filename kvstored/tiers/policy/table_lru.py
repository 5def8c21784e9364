"""Least recently used, for the chunks of a table that keeps the times and bundles itself."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.use_order import TimedRows, UseOrder


class UsedChunks(TimedRows, Protocol):
    """A table of chunks with the time of the last use of each."""

    def touch(
        self, identities: Sequence[bytes], /, *, holds: bool = False, together: bool = False
    ) -> None:
        """Hears that chunks are used now, one after the other; ignores those not there.

        With ``holds`` their times are after all uses, until they are touched again; with
        ``together`` they are one bundle from now on.
        """

    def use(self, row: int, /) -> tuple[ChunkId, int]:
        """The chunk in a row that is in use, and the time of its last use."""


class TableLru:
    """Implements ``EvictionPolicy`` without memory of its own for each chunk.

    There may be ten million chunks: their times lie in the table, where they enter and leave.
    """

    def __init__(self, table: UsedChunks) -> None:
        self._table = table
        self._order = UseOrder(table)

    def insert(self, key: ChunkId, group: int) -> None:
        """Does nothing: the table noted the time when the chunk entered it."""

    def touch(self, keys: Sequence[ChunkId], *, together: bool = False) -> None:
        """Makes chunks the most recently used ones, if they are in the table."""
        self._table.touch([key.encode() for key in keys], together=together)

    def remove(self, key: ChunkId) -> None:
        """Does nothing: a row without a chunk is no victim."""

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Does nothing: only what was used counts."""

    def is_queued(self, key: ChunkId) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[ChunkId]:
        """Bundles and single chunks in the order of their last use; of a bundle the last first."""
        return (self._table.use(row)[0] for row in self._order.victims(group))
