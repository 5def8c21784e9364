"""Least recently used."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.stamped_keys import StampedKeys

KeyT = TypeVar("KeyT", bound=Hashable)


class LruPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: what has not been used for the longest time goes first."""

    def __init__(self) -> None:
        self._keys: StampedKeys[KeyT] = StampedKeys()

    def insert(self, key: KeyT, group: int) -> None:
        """Makes a key the most recently used one."""
        self._keys.append(key, group)

    def touch(self, keys: Sequence[KeyT]) -> None:
        """Makes keys the most recently used ones, if they are in the tier."""
        for key in keys:
            group = self._keys.group_of(key)
            if group is not None:
                self._keys.append(key, group)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier."""
        self._keys.remove(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing: only what was used counts."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order of their last use, the oldest first."""
        return self._keys.keys(group)
