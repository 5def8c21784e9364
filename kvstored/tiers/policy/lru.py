"""Least recently used."""

from collections.abc import Hashable, Iterator
from heapq import merge
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class LruPolicy(Generic[KeyT]):
    """Evicts the key that has not been used for the longest time.

    Invariant: the stamps of each group ascend in the order of its dict.
    """

    def __init__(self) -> None:
        self._groups: dict[int, dict[KeyT, int]] = {}
        self._stamps = count()

    def insert(self, key: KeyT, group: int) -> None:
        """Makes a key the most recently used one."""
        keys = self._groups.setdefault(group, {})
        keys.pop(key, None)
        keys[key] = next(self._stamps)

    def touch(self, key: KeyT, group: int) -> None:
        """Makes a key the most recently used one, if it is in the tier."""
        if key in self._groups.get(group, {}):
            self.insert(key, group)

    def remove(self, key: KeyT, group: int) -> None:
        """Forgets a key, if it is in the tier."""
        self._groups.get(group, {}).pop(key, None)

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order of their last use, the oldest first."""
        if group is not None:
            return iter(self._groups.get(group, {}))
        entries = merge(*(keys.items() for keys in self._groups.values()), key=itemgetter(1))
        return (key for key, _ in entries)
