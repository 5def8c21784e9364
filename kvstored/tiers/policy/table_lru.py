"""Least recently used, for the chunks of a table that keeps the times and bundles itself.

With what waiting requests need of them, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.ranked_keys import RankedKeys
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


class TableLookAhead:
    """Implements ``EvictionPolicy``: as ``LookAheadPolicy`` over least recently used.

    It remembers hinted chunks only: there may be ten million others. ``group_of`` tells the group
    of a chunk in the table, None when it is not there. Invariant: ``queued`` has
    the chunks that have a place and are in the table, and the table holds exactly these. So the
    order of uses has nothing to pass over, however many chunks wait. What waits is in no bundle: by
    their places the chunks of a sequence stay and go together.
    """

    def __init__(self, table: UsedChunks, group_of: Callable[[ChunkId], int | None]) -> None:
        self._table = table
        self._group_of = group_of
        self._base = TableLru(table)
        self._places: dict[ChunkId, int] = {}
        self._queued: RankedKeys[ChunkId] = RankedKeys()

    def insert(self, key: ChunkId, group: int) -> None:
        """Hears of a chunk that entered the table, queued or not."""
        place = self._places.get(key)
        if place is not None:
            self._queued.put(key, group, place)
            self._table.touch([key.encode()], holds=True)

    def touch(self, keys: Sequence[ChunkId], *, together: bool = False) -> None:
        """Makes chunks the most recently used ones, if they are in the table and not queued."""
        self._base.touch([key for key in keys if key not in self._queued], together=together)

    def remove(self, key: ChunkId) -> None:
        """Forgets a chunk that left the table, but not its place."""
        self._queued.take(key)

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Queues chunks, or moves them; what is queued no longer is used now."""
        held: list[ChunkId] = []
        used: list[ChunkId] = []
        for key, place in places.items():
            if place is None:
                self._places.pop(key, None)
                if self._queued.take(key):
                    used.append(key)
                continue
            self._places[key] = place
            group = self._group_of(key)
            if group is not None:
                if key not in self._queued:
                    held.append(key)
                self._queued.put(key, group, place)
        self._table.touch([key.encode() for key in held], holds=True)
        self._base.touch(used)

    def is_queued(self, key: ChunkId) -> bool:
        """Whether somebody waits for a chunk."""
        return key in self._places

    def victims(self, group: int | None = None) -> Iterator[ChunkId]:
        """Chunks that nobody waits for, the oldest first, then queued ones from the tail."""
        yield from self._base.victims(group)
        yield from self._queued.keys(group)
