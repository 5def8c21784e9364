"""Evicts what is used last: the bound that nobody reaches who does not know the future."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.ranked_keys import RankedKeys

KeyT = TypeVar("KeyT", bound=Hashable)


class BeladyPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy`` with ``next_use``: when a key is used next, infinite for never.

    A bound only for keys of equal size. Only simulations can have it.
    """

    def __init__(self, next_use: Callable[[KeyT], float]) -> None:
        self._next_use = next_use
        self._keys: RankedKeys[KeyT] = RankedKeys()
        self._groups: dict[KeyT, int] = {}

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key with its next use."""
        self._groups[key] = group
        self._keys.put(key, group, self._next_use(key))

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Looks up the next uses of keys of the tier, each by itself."""
        if together:
            return
        for key in keys:
            if key in self._groups:
                self.insert(key, self._groups[key])

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier."""
        if self._groups.pop(key, None) is not None:
            self._keys.take(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing: it knows more."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order of their next uses, the last first."""
        return self._keys.keys(group)
