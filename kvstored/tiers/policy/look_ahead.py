"""Evicts what no waiting request needs; then what waits longest.

AttentionStore, section 3.3.2. The paper's window, (C_mem + C_disk) / S_kv, is
``prefetch_plan.window_length``: it bounds what an owner hints, not what is decided here.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.tiers.policy.ranked_keys import RankedKeys

KeyT = TypeVar("KeyT", bound=Hashable)


class LookAheadPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: queued keys stay until all others are gone.

    The others go in the order of ``base``, which does not hear of a key while it is queued: one
    that waits no longer was used. Of queued keys the one whose place is last goes first.
    Remembers places of keys that are not in the tier; the owner bounds how many it hints. A queued
    key is in no bundle: by their places the keys of a sequence stay and go together.
    """

    def __init__(self, base: EvictionPolicy[KeyT]) -> None:
        self._base = base
        self._places: dict[KeyT, int] = {}
        self._queued: RankedKeys[KeyT] = RankedKeys()
        self._groups: dict[KeyT, int] = {}
        """Of every key in the tier."""

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key: as queued if it is, else as the base does."""
        self._groups[key] = group
        place = self._places.get(key)
        if place is None:
            self._base.insert(key, group)
        else:
            self._queued.put(key, group, place)

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Tells the base of uses. It ignores queued keys, which are used when they leave."""
        self._base.touch(keys, together=together)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier, but not its place."""
        if self._groups.pop(key, None) is not None and not self._queued.take(key):
            self._base.remove(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Queues keys, or moves them; what is queued no longer is used now."""
        for key, place in places.items():
            group = self._groups.get(key)
            if place is None:
                self._places.pop(key, None)
                if group is not None and self._queued.take(key):
                    self._base.insert(key, group)
                continue
            self._places[key] = place
            if group is not None:
                if key not in self._queued:
                    self._base.remove(key)
                self._queued.put(key, group, place)

    def is_queued(self, key: KeyT) -> bool:
        """Whether somebody waits for a key."""
        return key in self._places

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys that nobody waits for in the base's order, then queued ones from the tail."""
        yield from self._base.victims(group)
        yield from self._queued.keys(group)
