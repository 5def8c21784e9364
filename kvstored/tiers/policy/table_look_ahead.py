"""What waiting requests need, for the chunks of a table that keeps the times itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.ranked_keys import RankedKeys
from kvstored.tiers.policy.table_lru import TableLru, UsedChunks


class TableLookAhead:
    """Implements ``EvictionPolicy``: as ``LookAheadPolicy`` over least recently used.

    It remembers hinted chunks only: there may be ten million others. ``group_of`` tells the group
    of a chunk in the table, None when it is not there. Invariant: ``queued`` has
    the chunks that have a place and are in the table.
    """

    def __init__(self, table: UsedChunks, group_of: Callable[[ChunkId], int | None]) -> None:
        self._group_of = group_of
        self._base = TableLru(table)
        self._places: dict[ChunkId, int] = {}
        self._queued: RankedKeys[ChunkId] = RankedKeys()
        self._passed: list[ChunkId] = []
        """Queued chunks among the oldest of all when victims were asked for last."""

    def insert(self, key: ChunkId, group: int) -> None:
        """Hears of a chunk that entered the table, queued or not."""
        place = self._places.get(key)
        if place is not None:
            self._queued.put(key, group, place)

    def touch(self, keys: Sequence[ChunkId]) -> None:
        """Makes chunks the most recently used ones, if they are in the table."""
        self._base.touch(keys)

    def remove(self, key: ChunkId) -> None:
        """Forgets a chunk that left the table, but not its place."""
        self._queued.take(key)

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Queues chunks, or moves them; what is queued no longer is used now."""
        for key, place in places.items():
            if place is None:
                self._places.pop(key, None)
                if self._queued.take(key):
                    self._base.touch([key])
                continue
            self._places[key] = place
            group = self._group_of(key)
            if group is not None:
                self._queued.put(key, group, place)

    def is_queued(self, key: ChunkId) -> bool:
        """Whether somebody waits for a chunk."""
        return key in self._places

    def victims(self, group: int | None = None) -> Iterator[ChunkId]:
        """Chunks that nobody waits for, the oldest first, then queued ones from the tail."""
        # A chunk that leaves the queue is used then, so its time means nothing until that: a
        # new one keeps it from being passed again and again.
        self._base.touch([key for key in self._passed if key in self._queued])
        self._passed = []
        for key in self._base.victims(group):
            if key in self._queued:
                self._passed.append(key)
            else:
                yield key
        yield from self._queued.keys(group)
