"""How often chunks were used lately, in bounded memory."""

from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class UseCounts(Generic[KeyT]):
    """Counts uses; old ones fade.

    When ``keys_max`` keys are known, every count is halved and those of one use at most
    are forgotten, as TinyLFU ages its sketch. The owner serialises the calls.
    """

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._counts: dict[KeyT, float] = {}

    def add(self, key: KeyT, share: float = 1.0) -> float:
        """Counts a use, or that share of one, and returns the count."""
        if key not in self._counts and len(self._counts) >= self._keys_max:
            self._age()
        count = self._counts.get(key, 0.0) + share
        self._counts[key] = count
        return count

    def count(self, key: KeyT) -> float:
        """Uses that are remembered."""
        return self._counts.get(key, 0.0)

    def __len__(self) -> int:
        """Keys that are known."""
        return len(self._counts)

    def _age(self) -> None:
        while len(self._counts) >= self._keys_max:
            self._counts = {key: count / 2 for key, count in self._counts.items() if count > 1}
