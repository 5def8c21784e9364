"""Least recently used."""

from collections.abc import Hashable, Iterator, Sequence
from heapq import merge
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class LruPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: what has not been used for the longest time goes first.

    Invariant: the stamps of each group ascend in the order of its dict.
    """

    def __init__(self) -> None:
        self._groups: dict[int, dict[KeyT, int]] = {}
        self._group_of: dict[KeyT, int] = {}
        self._stamps = count()

    def insert(self, key: KeyT, group: int) -> None:
        """Makes a key the most recently used one."""
        self.remove(key)
        self._group_of[key] = group
        self._groups.setdefault(group, {})[key] = next(self._stamps)

    def touch(self, keys: Sequence[KeyT]) -> None:
        """Makes keys the most recently used ones, if they are in the tier."""
        for key in keys:
            if key in self._group_of:
                self.insert(key, self._group_of[key])

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier."""
        if key in self._group_of:
            del self._groups[self._group_of.pop(key)][key]

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order of their last use, the oldest first."""
        if group is not None:
            return iter(self._groups.get(group, {}))
        entries = merge(*(keys.items() for keys in self._groups.values()), key=itemgetter(1))
        return (key for key, _ in entries)
