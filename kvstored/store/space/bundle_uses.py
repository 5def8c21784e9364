"""When bundles of chunks were used last, in compact columns. Pure.

A bundle is what a sequence used together. It has a number, and is gone with its last chunk.
"""

from array import array

import numpy as np

ALONE = 0
"""The number of no bundle: that of a chunk that goes by itself."""
_FIRST_COUNT = 1024


class BundleUses:
    """Bundles by number, 16 bytes each. The owner serialises the calls.

    ``times`` has the last use of each, 0 for ALONE and for those that are gone: uint64.
    """

    def __init__(self) -> None:
        self.times = np.zeros(_FIRST_COUNT, np.uint64)
        self._counts = np.zeros(_FIRST_COUNT, np.uint32)
        self._ends = np.zeros(_FIRST_COUNT, np.uint32)
        self._free = array("I")
        self._next = ALONE + 1

    @property
    def count(self) -> int:
        """Bundles that have chunks."""
        return self._next - 1 - len(self._free)

    def make(self) -> int:
        """A bundle without chunks, which must get some."""
        if self._free:
            return self._free.pop()
        number = self._next
        self._next += 1
        if number == len(self.times):
            self.times, self._counts, self._ends = (
                np.concatenate([column, np.zeros_like(column)])
                for column in (self.times, self._counts, self._ends)
            )
        return number

    def size(self, number: int) -> int:
        """Chunks of a bundle."""
        return int(self._counts[number])

    def is_last(self, number: int, position: int) -> bool:
        """Whether nothing of a bundle comes after this position."""
        return int(self._ends[number]) == position + 1

    def enter(self, number: int) -> int:
        """Counts a chunk, and gives it the last position."""
        position = int(self._ends[number])
        self._counts[number] += 1
        self._ends[number] = position + 1
        return position

    def leave(self, number: int, position: int) -> None:
        """Hears that the chunk at a position is gone."""
        if self.is_last(number, position):
            self._ends[number] = position
        self._counts[number] -= 1
        if not self._counts[number]:
            self.times[number] = self._ends[number] = 0
            self._free.append(number)
