"""When keys are used, for the one policy that may know it."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from math import inf
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Future(Generic[KeyT]):
    """The uses of keys, in their order, of which some have passed."""

    def __init__(self, uses: Iterable[KeyT]) -> None:
        self._ahead: dict[KeyT, list[int]] = defaultdict(list)
        for number, key in enumerate(uses):
            self._ahead[key].append(number)
        for numbers in self._ahead.values():
            numbers.reverse()

    def passed(self, key: KeyT) -> None:
        """Hears of a use."""
        self._ahead[key].pop()

    def next_use(self, key: KeyT) -> float:
        """The number of the next use, infinite if there is none."""
        ahead = self._ahead.get(key)
        return ahead[-1] if ahead else inf
