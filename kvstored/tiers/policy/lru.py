"""Least recently used, a sequence at a time."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kvstored.tiers.policy.bundles import Bundles
from kvstored.tiers.policy.stamped_keys import StampedKeys

KeyT = TypeVar("KeyT", bound=Hashable)


class LruPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``: what has not been used for the longest time goes first.

    A use of a key is one of all its bundle, which goes as a whole before the next one
    (AttentionStore, section 3.3.2: a conversation is the unit of eviction), the last key first.
    A use costs time for each key of the bundle, unless that was the last one used.
    """

    def __init__(self) -> None:
        self._keys: StampedKeys[KeyT] = StampedKeys()
        self._bundles: Bundles[KeyT] = Bundles()
        self._latest: Hashable = None
        """The bundle, or the key alone, that was used last and is where it belongs.

        Only while there are bundles: a use together forgets it.
        """

    def insert(self, key: KeyT, group: int) -> None:
        """Makes a key, with its bundle, the most recently used one."""
        self._keys.append(key, group)
        self._latest = None
        if self._bundles.of(key) is not None:
            self._use((key,))

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Makes keys, with their bundles, the most recently used ones, if they are in the tier."""
        here = [key for key in keys if key in self._keys]
        if together and here:
            self._bundles.join(tuple(dict.fromkeys(here)))
            self._latest = None
        self._use(here)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier."""
        self._keys.remove(key)
        self._bundles.leave(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing: only what was used counts."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys in the order of their last use, the oldest first."""
        return self._keys.keys(group)

    def _use(self, keys: Sequence[KeyT]) -> None:
        """Moves each key alone, and each bundle once, as its last use says."""
        if not self._bundles:
            for key in keys:
                self._move(key)
            self._latest = None
            return
        units: dict[Hashable, Iterable[KeyT]] = {}
        for key in reversed(keys):
            bundle = self._bundles.of(key)
            units.setdefault(key if bundle is None else bundle, bundle or (key,))
        if list(units) == [self._latest]:
            return
        for unit in reversed(units.values()):
            for key in unit:
                self._move(key)
        self._latest = next(iter(units), None)

    def _move(self, key: KeyT) -> None:
        group = self._keys.group_of(key)
        assert group is not None
        self._keys.move(key, group, group)
