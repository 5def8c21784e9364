"""Keys of groups in the order in which they came."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from heapq import merge
from itertools import count
from operator import itemgetter
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class StampedKeys(Generic[KeyT]):
    """The last that came is the last of its group, and of all.

    Linked dicts: the first entry of a plain one is found by a walk over those that are gone.
    Invariant: the stamps of each group ascend in the order of its dict.
    """

    def __init__(self) -> None:
        self._groups: dict[int, OrderedDict[KeyT, int]] = {}
        self._group_of: dict[KeyT, int] = {}
        self._stamps = count()

    def __contains__(self, key: KeyT) -> bool:
        """Whether a key is there."""
        return key in self._group_of

    def __len__(self) -> int:
        """Keys of all groups."""
        return len(self._group_of)

    @property
    def groups(self) -> list[int]:
        """Groups that had a key."""
        return list(self._groups)

    def group_of(self, key: KeyT) -> int | None:
        """The group of a key, if it is there."""
        return self._group_of.get(key)

    def count(self, group: int) -> int:
        """Keys of a group."""
        return len(self._groups.get(group, ()))

    def append(self, key: KeyT, group: int) -> None:
        """Makes a key the last one, wherever it was."""
        self.remove(key)
        self._group_of[key] = group
        keys = self._groups.get(group)
        if keys is None:
            keys = self._groups[group] = OrderedDict()
        keys[key] = next(self._stamps)

    def remove(self, key: KeyT) -> bool:
        """Takes a key out; False when it is not there."""
        group = self._group_of.pop(key, None)
        if group is None:
            return False
        del self._groups[group][key]
        return True

    def first(self, group: int) -> KeyT | None:
        """The first key of a group, None when that is empty."""
        return next(iter(self._groups.get(group, ())), None)

    def stamp(self, key: KeyT) -> int:
        """When a key that is there came: larger than those of all before it."""
        return self._groups[self._group_of[key]][key]

    def keys(self, group: int | None = None) -> Iterator[KeyT]:
        """The keys of a group, or of all, the first first."""
        if group is not None:
            return iter(self._groups.get(group, ()))
        if len(self._groups) == 1:
            return iter(*self._groups.values())
        entries = merge(*(keys.items() for keys in self._groups.values()), key=itemgetter(1))
        return (key for key, _ in entries)
