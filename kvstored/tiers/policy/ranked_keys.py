"""Keys of groups by a rank, the largest first."""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush, merge
from itertools import count
from typing import Generic, TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

_Entry: TypeAlias = tuple[float, int, KeyT, int]
"""The rank's negative, a number by which no two are equal, the key, and its group."""
_SPARE_ENTRIES = 64
"""When a heap has so many entries more than twice its keys, those that count move to a new one."""
_MOVED_AT_ONCE = 2
"""Entries that each put or take looks at for that: no call pays for all.

With fewer, the new heap would have too many entries before the old one is empty.
"""


class RankedKeys(Generic[KeyT]):
    """Keys that are put and taken in any order; those of equal rank in the order of their puts.

    Heaps whose entries count while they are the last of their keys: a put or a take has
    logarithmic time by itself. A walk first passes over what lies on top and does not count; puts
    and takes leave some of that behind, so that it is never much.
    """

    def __init__(self) -> None:
        self._heaps: dict[int, list[_Entry[KeyT]]] = {}
        self._old_heaps: dict[int, list[_Entry[KeyT]]] = {}
        """Those of groups whose entries move to a new heap, from their ends."""
        self._entries: dict[KeyT, _Entry[KeyT]] = {}
        """Those that count: the objects in the heaps."""
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
        entry = (-rank, next(self._numbers), key, group)
        self._entries[key] = entry
        self._counts[group] = self._counts.get(group, 0) + 1
        heappush(self._heaps.setdefault(group, []), entry)
        self._move_some(group)

    def take(self, key: KeyT) -> bool:
        """Takes a key out; False when it is not there."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        group = entry[3]
        self._counts[group] -= 1
        self._move_some(group)
        return True

    def keys(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of a group, or of all, those of the largest rank first."""
        groups = [group] if group is not None else list(self._heaps)
        heaps = [
            heap for one in groups for heap in (self._heaps.get(one), self._old_heaps.get(one))
        ]
        return (key for _, _, key, _ in merge(*(self._in_order(heap) for heap in heaps if heap)))

    def _move_some(self, group: int) -> None:
        """Goes on to leave entries behind that do not count, if there are too many."""
        heap = self._heaps[group]
        self._drop_some(heap)
        old = self._old_heaps.get(group)
        if not old:
            if len(heap) > 2 * self._counts[group] + _SPARE_ENTRIES:
                self._old_heaps[group], self._heaps[group] = heap, []
            return
        for _ in range(min(_MOVED_AT_ONCE, len(old))):
            # Without its last entry a heap is still one.
            entry = old.pop()
            if self._counts_still(entry):
                heappush(heap, entry)

    def _drop_some(self, heap: list[_Entry[KeyT]]) -> None:
        """Takes some entries that do not count from the top: keys put again with lower ranks."""
        for _ in range(_MOVED_AT_ONCE):
            if not heap or self._counts_still(heap[0]):
                return
            heappop(heap)

    def _in_order(self, heap: list[_Entry[KeyT]]) -> Iterator[_Entry[KeyT]]:
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

    def _counts_still(self, entry: _Entry[KeyT]) -> bool:
        return self._entries.get(entry[2]) is entry
