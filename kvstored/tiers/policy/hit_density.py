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
        self._once: StampedKeys[KeyT] = StampedKeys()
        self._again: StampedKeys[KeyT] = StampedKeys()
        self._ages = (UseAges(), UseAges())
        """Of keys used once, and again."""
        self._used: dict[KeyT, int] = {}
        """When each key was used last."""
        self._gone: OrderedDict[KeyT, tuple[int, UseAges]] = OrderedDict()
        """When keys that left were used last, and what hears of their end."""
        self._clock = 0
        self._events = 0

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key. One that left a while ago is used again now."""
        if key in self._used:
            self._use(key, group)
            return
        gone = self._gone.pop(key, None)
        self._clock += 1
        self._used[key] = self._clock
        if gone is None:
            self._once.append(key, group)
        else:
            self._end(gone[1], gone[0], is_hit=True)
            self._again.append(key, group)

    def touch(self, keys: Sequence[KeyT]) -> None:
        """Makes keys of the tier keys that are used again."""
        for key in keys:
            if key in self._used:
                group = self._once.group_of(key)
                group = self._again.group_of(key) if group is None else group
                assert group is not None
                self._use(key, group)

    def remove(self, key: KeyT) -> None:
        """Remembers a key that left, if it was in the tier."""
        used = self._used.pop(key, None)
        if used is None:
            return
        ages = self._ages[not self._once.remove(key)]
        self._again.remove(key)
        self._gone[key] = (used, ages)
        while len(self._gone) > len(self._used) + 1:
            _, (used, ages) = self._gone.popitem(last=False)
            self._end(ages, used, is_hit=False)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing."""

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order in which they would go, if nothing were used any more."""
        queues = (self._once.keys(group), self._again.keys(group))
        heads = [next(queue, None) for queue in queues]
        while heads[0] is not None or heads[1] is not None:
            kind = self._poorer(heads[0], heads[1])
            key = heads[kind]
            assert key is not None
            yield key
            heads[kind] = next(queues[kind], None)

    def _poorer(self, once: KeyT | None, again: KeyT | None) -> int:
        """Which of two keys goes first: 0 or 1."""
        if once is None or again is None:
            return 0 if again is None else 1
        used_once, used_again = self._used[once], self._used[again]
        density_once = self._ages[0].density(self._clock - used_once)
        density_again = self._ages[1].density(self._clock - used_again)
        if used_once < used_again:
            return int(density_again * CLEARLY < density_once)
        return int(density_again <= density_once * CLEARLY)

    def _use(self, key: KeyT, group: int) -> None:
        was_once = self._once.remove(key)
        self._clock += 1
        self._end(self._ages[not was_once], self._used[key], is_hit=True)
        self._used[key] = self._clock
        self._again.append(key, group)

    def _end(self, ages: UseAges, used: int, *, is_hit: bool) -> None:
        ages.end(self._clock - used, is_hit=is_hit)
        self._events += 1
        if self._events % LOOK_EVENTS == 0:
            for each in self._ages:
                each.look()
