"""Evicts what brings the fewest uses for the room that it takes, as far as the past tells."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.stamped_keys import StampedKeys
from kvstored.tiers.policy.use_ages import UseAges

KeyT = TypeVar("KeyT", bound=Hashable)

LOOK_EVENTS = 4000
"""After so many uses and losses the densities are learned again."""


CLEARLY = 2.0
"""The newer of two keys goes first only if the other one's density is so many times its own.

Densities are estimates; where they say little, the oldest key goes, as always.
"""


class HitDensityPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: least recently used, but keys used once go sooner or later.

    The oldest of these, as most blocks of a prompt are, is compared with the oldest of those used
    again, as in a conversation that goes on. The older one goes, unless its density of hits at
    its age is clearly better. Age is counted in uses of any key. Keys that left are remembered,
    as many as are in the tier: so it learns what returns later than a key stays now.
    """

    def __init__(self) -> None:
        self._keys: StampedKeys[KeyT] = StampedKeys()
        """Those used once in twice their group, those used again in one more."""
        self._groups_once: list[int] = []
        self._groups_again: list[int] = []
        """Kept apart, so that no eviction has to sort them by kind."""
        self._ages = (UseAges(), UseAges())
        """Of keys used once, and again."""
        self._gone: OrderedDict[KeyT, tuple[int, UseAges]] = OrderedDict()
        """When keys that left were used last, and what hears of their end."""
        self._events = 0

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key. One that left a while ago is used again now."""
        once = 2 * group
        if once not in self._groups_once:
            self._groups_once.append(once)
            self._groups_again.append(once + 1)
        here = self._keys.group_of(key)
        if here is not None:
            self._use(key, here, once + 1)
            return
        gone = self._gone.pop(key, None)
        if gone is not None:
            self._end(gone[1], self._keys.clock - gone[0], is_hit=True)
        self._keys.append(key, once + (gone is not None))

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Makes keys of the tier keys that are used again, each by itself.

        What is used together does not count: of prompts that begin alike one beginning is kept,
        and not what follows once.
        """
        if together:
            return
        for key in keys:
            here = self._keys.group_of(key)
            if here is not None:
                self._use(key, here, here | 1)

    def remove(self, key: KeyT) -> None:
        """Remembers a key that left, if it was in the tier."""
        here = self._keys.group_of(key)
        if here is None:
            return
        self._gone[key] = (self._keys.stamp(key), self._ages[here % 2])
        self._keys.remove(key)
        while len(self._gone) > len(self._keys) + 1:
            _, (used, ages) = self._gone.popitem(last=False)
            self._end(ages, self._keys.clock - used, is_hit=False)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order in which they would go, if nothing were used any more."""
        once = self._keys.stamped(self._groups_once if group is None else [2 * group])
        again = self._keys.stamped(self._groups_again if group is None else [2 * group + 1])
        of_once, of_again = next(once, None), next(again, None)
        while of_once is not None and of_again is not None:
            if self._is_once(of_once[1], of_again[1]):
                yield of_once[0]
                of_once = next(once, None)
            else:
                yield of_again[0]
                of_again = next(again, None)
        for first, others in ((of_once, once), (of_again, again)):
            if first is not None:
                yield first[0]
                yield from (key for key, _ in others)

    def _is_once(self, once: int, again: int) -> bool:
        """Whether of two keys that used once goes first, by their last uses."""
        clock = self._keys.clock
        density_once = self._ages[0].density(clock - once)
        density_again = self._ages[1].density(clock - again)
        if once < again:
            return density_once <= density_again * CLEARLY
        return density_once * CLEARLY < density_again

    def _use(self, key: KeyT, here: int, there: int) -> None:
        """Moves a key of the tier to a group of those used again."""
        now = self._keys.clock
        used = self._keys.move(key, here, there)
        self._end(self._ages[here % 2], now - used, is_hit=True)

    def _end(self, ages: UseAges, age: int, *, is_hit: bool) -> None:
        ages.end(age, is_hit=is_hit)
        self._events += 1
        if self._events % LOOK_EVENTS == 0:
            for each in self._ages:
                each.look()
