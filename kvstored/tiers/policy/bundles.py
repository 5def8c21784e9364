"""Which keys a sequence used together. Pure bookkeeping; the owner serialises the calls."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


def parts(keys: Sequence[KeyT], count_max: int) -> Iterator[Sequence[KeyT]]:
    """Parts of what is used together. Each begins with the last key of the one before."""
    for start in range(0, len(keys), count_max - 1):
        if start == 0 or start < len(keys) - 1:
            yield keys[start : start + count_max]


class Bundle(Generic[KeyT]):
    """Keys by their positions, which ascend; ``end`` is behind the last one."""

    __slots__ = ("end", "positions")

    def __init__(self) -> None:
        self.positions: dict[KeyT, int] = {}
        self.end = 0

    def __iter__(self) -> Iterator[KeyT]:
        """The keys, the last first: what is left is what the sequence begins with."""
        return reversed(self.positions)

    def enter(self, key: KeyT) -> None:
        """Adds a key at the end."""
        self.positions[key] = self.end
        self.end += 1

    def leave(self, key: KeyT) -> None:
        """Takes a key out that is there."""
        position = self.positions.pop(key)
        if position + 1 == self.end:
            self.end = position


class Bundles(Generic[KeyT]):
    """The bundle of each key that is in one. A key is in that of the sequence that used it last.

    So one that several sequences share has the best rank of them, and stays while one of them does.
    """

    def __init__(self) -> None:
        self._of: dict[KeyT, Bundle[KeyT]] = {}

    def __len__(self) -> int:
        """Keys that are in one."""
        return len(self._of)

    def of(self, key: KeyT) -> Bundle[KeyT] | None:
        """The bundle of a key; None for one alone."""
        return self._of.get(key)

    def join(self, keys: Sequence[KeyT]) -> Bundle[KeyT] | None:
        """Makes different keys, in their order, one bundle, and returns it; None for one alone.

        Where the first of them is the last of its bundle, the others follow it there.
        """
        first = self._of.get(keys[0])
        if len(keys) == (1 if first is None else len(first.positions)) and all(
            self._of.get(key) is first for key in keys
        ):
            return first
        bundle, others = first, keys[1:]
        if bundle is None or bundle.positions[keys[0]] + 1 != bundle.end:
            bundle, others = Bundle(), keys
        for key in others:
            self.leave(key)
            bundle.enter(key)
            self._of[key] = bundle
        return bundle

    def leave(self, key: KeyT) -> None:
        """Takes a key out of its bundle, if it is in one."""
        bundle = self._of.pop(key, None)
        if bundle is not None:
            bundle.leave(key)
