"""Any policy over whole sequences: what it would do if a sequence were one key."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from typing import Generic, TypeVar

from kvstored.tiers.policy.protocol import EvictionPolicy

KeyT = TypeVar("KeyT", bound=Hashable)

_GROUP = 0


class WholeSequences(Generic[KeyT]):
    """Implements ``EvictionPolicy`` with a ``base`` that knows sequences by numbers.

    Only uses together count. A key is in the sequence that used it last. A sequence
    goes on where a use begins with all of one that is known; else it is a new one. Keys that were
    never used together go last.
    """

    def __init__(self, base: EvictionPolicy[int]) -> None:
        self._base = base
        self._numbers = count()
        self._sequence_of: dict[KeyT, int] = {}
        self._keys: dict[int, dict[KeyT, None]] = {}
        """Of each sequence, in its order."""
        self._new: dict[KeyT, None] = {}

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key that no sequence used yet."""
        assert group == _GROUP
        if key not in self._sequence_of:
            self._new[key] = None

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Hears of a use of a sequence."""
        here = [key for key in keys if key in self._sequence_of or key in self._new]
        if not together or not here:
            return
        known = [key for key in here if key in self._sequence_of]
        number = self._sequence_of[known[-1]] if known else None
        if number is None or next(reversed(self._keys[number])) != known[-1]:
            number = next(self._numbers)
            self._keys[number] = {}
            self._base.insert(number, _GROUP)
        else:
            self._base.touch((number,))
        own = self._keys[number]
        for key in here:
            if self._sequence_of.get(key) != number:
                self.remove(key)
                self._sequence_of[key] = number
                own[key] = None

    def remove(self, key: KeyT) -> None:
        """Forgets a key, and its sequence with the last one."""
        self._new.pop(key, None)
        number = self._sequence_of.pop(key, None)
        if number is not None:
            del self._keys[number][key]
            if not self._keys[number]:
                del self._keys[number]
                self._base.remove(number)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing: what waits is compared elsewhere."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Sequences as the base says, of each the last key first."""
        _ = group
        for number in self._base.victims():
            yield from reversed(self._keys[number])
        yield from self._new
