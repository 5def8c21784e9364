"""S3-FIFO: a small queue for what is new, a main one for what was used again, and ghosts.

Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction (SOSP 2023).
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Generic, TypeVar

from kvstored.tiers.policy.stamped_keys import StampedKeys

KeyT = TypeVar("KeyT", bound=Hashable)

SMALL_SHARE = 0.1
"""Part of a group's keys that its small queue holds, by their number."""
USES_MAX = 3
"""More uses than these are not told apart."""
USES_TO_MOVE = 2
"""With so many uses after it entered, a key moves from the small queue to the main one."""


class S3FifoPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: what is used once goes soon, without displacing the others.

    Every group has its own two queues. A key that left from the small queue is remembered, as
    one of at most as many ghosts as the main queues have keys: it enters the main queue if it
    comes back. A decision takes amortised constant time: every step that looks for a victim
    takes away a use.
    """

    def __init__(self) -> None:
        self._small: StampedKeys[KeyT] = StampedKeys()
        self._main: StampedKeys[KeyT] = StampedKeys()
        self._uses: dict[KeyT, int] = {}
        self._ghosts: OrderedDict[KeyT, None] = OrderedDict()

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key in the small queue; in the main one if it is a ghost, or changes groups."""
        here = self._group_of(key)
        if here == group:
            self.touch((key,))
        elif here is not None or key in self._ghosts:
            self._small.remove(key)
            self._ghosts.pop(key, None)
            self._main.append(key, group)
            self._uses[key] = 0
        else:
            self._small.append(key, group)
            self._uses[key] = 0

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Counts uses; no key moves. What is used together does not count."""
        if together:
            return
        for key in keys:
            if key in self._uses:
                self._uses[key] = min(self._uses[key] + 1, USES_MAX)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, or makes it a ghost if it was in the small queue."""
        if self._uses.pop(key, None) is None:
            return
        if not self._main.remove(key):
            self._small.remove(key)
            self._ghosts[key] = None
            while len(self._ghosts) > max(1, len(self._main)):
                self._ghosts.popitem(last=False)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys as the queues would give them up; of several groups the one that came first."""
        groups = [group] if group is not None else self._small.groups
        if group is None and groups != self._main.groups:
            groups = list(dict.fromkeys(groups + self._main.groups))
        if len(groups) == 1:
            return self._victims(groups[0])
        return merge(*(self._victims(one) for one in groups), key=self._stamp)

    def _group_of(self, key: KeyT) -> int | None:
        here = self._small.group_of(key)
        return self._main.group_of(key) if here is None else here

    def _stamp(self, key: KeyT) -> int:
        """When a key of the tier came to its queue."""
        queue = self._main if key in self._main else self._small
        return queue.stamp(key)

    def _victims(self, group: int) -> Iterator[KeyT]:
        """Keys of a group. The steps to the first one are made, later ones only thought."""
        self._settle(group)
        small, main = self._small.keys(group), self._main.keys(group)
        small_count, main_count = self._small.count(group), self._main.count(group)
        returned: deque[tuple[KeyT, int]] = deque()
        while small_count or main_count:
            if _takes_small(small_count, main_count):
                key = next(small)
                small_count -= 1
                if self._uses[key] >= USES_TO_MOVE:
                    returned.append((key, 0))
                    main_count += 1
                else:
                    yield key
                continue
            first = next(main, None)
            key, uses = returned.popleft() if first is None else (first, self._uses[first])
            if uses:
                returned.append((key, uses - 1))
            else:
                main_count -= 1
                yield key

    def _settle(self, group: int) -> None:
        """Moves keys until that at the front of its queue may go."""
        while True:
            is_small = _takes_small(self._small.count(group), self._main.count(group))
            key = (self._small if is_small else self._main).first(group)
            if key is None or self._uses[key] < (USES_TO_MOVE if is_small else 1):
                return
            self._uses[key] = 0 if is_small else self._uses[key] - 1
            self._small.remove(key)
            self._main.append(key, group)


def _takes_small(small_count: int, main_count: int) -> bool:
    """Whether the small queue gives up a key."""
    return small_count > 0 and small_count >= SMALL_SHARE * (small_count + main_count)
