"""First in, first out."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.stamped_keys import StampedKeys

KeyT = TypeVar("KeyT", bound=Hashable)


class FifoPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: what has been in the tier for the longest time goes first."""

    def __init__(self) -> None:
        self._keys: StampedKeys[KeyT] = StampedKeys()

    def insert(self, key: KeyT, group: int) -> None:
        """Makes a key the newest one, unless it is in this group already."""
        if self._keys.group_of(key) != group:
            self._keys.append(key, group)

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Does nothing: a use keeps nothing."""

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier."""
        self._keys.remove(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order in which they entered the tier, the oldest first."""
        return self._keys.keys(group)
