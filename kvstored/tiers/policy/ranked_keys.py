"""Keys of groups by a rank, the largest first."""

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import count
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

_SPARE_ENTRIES = 64
"""A heap may have so many entries more than twice its keys."""


class RankedKeys(Generic[KeyT]):
    """Keys that are put and taken in any order; those of equal rank in the order of their puts.

    Heaps whose entries count while they are the last of their keys: logarithmic time.
    """

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[float, int, KeyT]]] = {}
        self._entries: dict[KeyT, tuple[int, int]] = {}
        """Group, and number of the entry that counts."""
        self._counts: dict[int, int] = {}
        self._numbers = count()

    def __contains__(self, key: KeyT) -> bool:
        """Whether a key is there."""
        return key in self._entries

    def __len__(self) -> int:
        """Keys of all groups."""
        return len(self._entries)

    def put(self, key: KeyT, group: int, rank: float) -> None:
        """Enters a key, or gives it another group and rank."""
        self.take(key)
        number = next(self._numbers)
        self._entries[key] = (group, number)
        self._counts[group] = self._counts.get(group, 0) + 1
        heap = self._heaps.setdefault(group, [])
        heappush(heap, (-rank, number, key))
        if len(heap) > 2 * self._counts[group] + _SPARE_ENTRIES:
            heap[:] = [entry for entry in heap if self._counts_still(entry)]
            heapify(heap)

    def take(self, key: KeyT) -> bool:
        """Takes a key out; False when it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._counts[entry[0]] -= 1
        return True

    def keys(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of a group, or of all, those of the largest rank first."""
        groups = [group] if group is not None else list(self._heaps)
        return (key for _, _, key in merge(*map(self._in_order, groups)))

    def _in_order(self, group: int) -> Iterator[tuple[float, int, KeyT]]:
        heap = self._heaps.get(group, [])
        while heap and not self._counts_still(heap[0]):
            heappop(heap)
        # A walk down the heap: the next one is always a child of one that was passed.
        ahead = [(heap[0], 0)] if heap else []
        while ahead:
            entry, position = heappop(ahead)
            if self._counts_still(entry):
                yield entry
            for child in range(2 * position + 1, min(2 * position + 3, len(heap))):
                heappush(ahead, (heap[child], child))

    def _counts_still(self, entry: tuple[float, int, KeyT]) -> bool:
        known = self._entries.get(entry[2])
        return known is not None and known[1] == entry[1]
