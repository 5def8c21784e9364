"""How often chunks were used lately, in memory that is taken at once."""

from array import array
from collections.abc import Hashable
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

BUCKET_KEYS = 8
"""Keys that share a bucket, of which a new one takes the place of one that was seldom used."""
_FREE = -1
"""Of a free place: no hash of Python is -1."""


class UseCounts(Generic[KeyT]):
    """Counts uses of up to ``keys_max`` keys, a multiple of ``BUCKET_KEYS``; old ones fade.

    A key is known by its hash, and has its place in one bucket. When a new key finds its bucket
    full, every count there is halved and those of one use at most are forgotten, as TinyLFU ages
    its sketch. The owner serialises the calls. Raises ValueError for another ``keys_max``.
    """

    def __init__(self, keys_max: int) -> None:
        if keys_max <= 0 or keys_max % BUCKET_KEYS:
            raise ValueError(f"keys_max is {keys_max}; it must be a multiple of {BUCKET_KEYS}")
        self._bucket_count = keys_max // BUCKET_KEYS
        self._hashes = array("q", [_FREE]) * keys_max
        self._counts = array("f", [0.0]) * keys_max

    def add(self, key: KeyT, share: float = 1.0) -> float:
        """Counts a use, or that share of one, and returns the count."""
        number, first = self._bucket_of(key)
        place = self._find(number, first)
        if place is None:
            place = self._free_place(first)
            self._hashes[place] = number
            self._counts[place] = 0.0
        self._counts[place] += share
        return self._counts[place]

    def count(self, key: KeyT) -> float:
        """Uses that are remembered."""
        place = self._find(*self._bucket_of(key))
        return 0.0 if place is None else self._counts[place]

    def __len__(self) -> int:
        """Keys that are known."""
        return len(self._hashes) - self._hashes.count(_FREE)

    def _bucket_of(self, key: KeyT) -> tuple[int, int]:
        """What stands for a key, and the first place of its bucket."""
        number = hash(key)
        return number, number % self._bucket_count * BUCKET_KEYS

    def _find(self, number: int, first: int) -> int | None:
        try:
            return first + self._hashes[first : first + BUCKET_KEYS].index(number)
        except ValueError:
            return None

    def _free_place(self, first: int) -> int:
        place = self._find(_FREE, first)
        while place is None:
            for each in range(first, first + BUCKET_KEYS):
                if self._counts[each] <= 1.0:
                    self._hashes[each] = _FREE
                self._counts[each] /= 2
            place = self._find(_FREE, first)
        return place
