"""Keys of groups in the order in which they came."""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from heapq import merge
from operator import itemgetter
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class StampedKeys(Generic[KeyT]):
    """The last that came is the last of its group, and of all.

    Linked dicts: the first entry of a plain one is found by a walk over those that are gone.
    Invariant: the stamps of each group ascend in the order of its dict.
    """

    def __init__(self) -> None:
        self._groups: defaultdict[int, OrderedDict[KeyT, int]] = defaultdict(OrderedDict)
        self._group_of: dict[KeyT, int] = {}
        self.clock = 0
        """The stamp of the key that came last; they grow by one."""

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
        here = self._group_of.get(key)
        if here is not None:
            self.move(key, here, group)
            return
        self.clock += 1
        self._group_of[key] = group
        self._groups[group][key] = self.clock

    def move(self, key: KeyT, here: int, group: int) -> int:
        """Makes a key of the group ``here`` the last one of a group; its stamp before that."""
        self.clock += 1
        keys = self._groups[here]
        if here == group:
            before = keys[key]
            keys[key] = self.clock
            keys.move_to_end(key)
            return before
        before = keys.pop(key)
        self._group_of[key] = group
        self._groups[group][key] = self.clock
        return before

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
        groups = list(self._groups) if group is None else [group]
        if len(groups) == 1:
            return iter(self._groups.get(groups[0], ()))
        return (key for key, _ in self.stamped(groups))

    def stamped(self, groups: Sequence[int]) -> Iterator[tuple[KeyT, int]]:
        """The keys of some groups with their stamps, the first first."""
        if len(groups) == 1:
            return iter(self._groups.get(groups[0], {}).items())
        queues = (self._groups[group].items() for group in groups if group in self._groups)
        return merge(*queues, key=itemgetter(1))
