"""When chunks in rows were used last: those of one bundle all together. Pure.

A chunk is in the bundle of the sequence that used it last, or alone. So one that several
sequences share has the best rank of them, and stays while one of them does.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kvstored.store.space.chunk_columns import HELD, ROW_BITS, ROW_MASK, ChunkColumns, Segment


def _nobody_waits() -> None:
    pass


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


POSITION_MAX = (1 << 16) - 1
"""Chunks of a bundle from this position on count as being at it."""


class UseTimes:
    """The times of the rows of ``columns``. The owner serialises the calls.

    Invariant: no chunk of a bundle was used after the bundle was. Only chunks of one bundle
    have the same time; of these the one with the largest position is to go first.
    """

    def __init__(self, columns: ChunkColumns) -> None:
        self._columns = columns
        self._bundles = BundleUses()
        self.version = 0
        """Changes when rows get other times than those of their uses."""
        self.pause: Callable[[], None] = _nobody_waits
        """What who looks at many rows calls now and then; the owner may let others in there."""

    @property
    def bundle_count(self) -> int:
        """Bundles that have chunks."""
        return self._bundles.count

    def segments(self, step: int = 1) -> Iterator[NDArray[np.uint64]]:
        """The times of every ``step``th row of each segment; UNUSED for rows without a chunk."""
        return (self.segment(number, step) for number in range(len(self._columns.segments)))

    def segment(self, number: int, step: int = 1) -> NDArray[np.uint64]:
        """The times of every ``step``th row of a segment; a view, or a copy."""
        segment = self._columns.segments[number]
        times = segment.times[::step]
        if not segment.has_bundles:
            return times
        found: NDArray[np.uint64] = np.maximum(times, self._bundles.times[segment.bundles[::step]])
        return found

    def single(self, number: int) -> NDArray[np.uint64]:
        """As ``segment``, with times that keep the order of each bundle where bundles are unknown.

        For held rows it is when they began to be.
        """
        times = self.segment(number) & np.uint64(HELD - 1)
        found: NDArray[np.uint64] = times - np.minimum(
            times, self._columns.segments[number].positions
        )
        return found

    def positions(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.uint16]:
        """The positions of rows of a segment in their bundles; shapes [n] and [n]."""
        return self._columns.segments[number].positions[indices]

    def of(self, row: int) -> int:
        """The time of a row."""
        segment, index = self._place(row)
        return max(int(segment.times[index]), int(self._bundles.times[segment.bundles[index]]))

    def use(self, row: int, time: int) -> None:
        """Hears of a use of a chunk, which is one of its bundle."""
        segment, index = self._place(row)
        segment.times[index] = time
        bundle = int(segment.bundles[index])
        if bundle != ALONE:
            self._bundles.times[bundle] = time

    def hold(self, row: int, time: int) -> None:
        """Takes a chunk out of the order of uses, and out of its bundle, until it is used."""
        self.leave(row)
        segment, index = self._place(row)
        segment.times[index] = time | HELD

    def leave(self, row: int) -> None:
        """Makes a chunk one that goes by itself."""
        segment, index = self._place(row)
        bundle = int(segment.bundles[index])
        if bundle != ALONE:
            self._bundles.leave(bundle, int(segment.positions[index]))
            segment.bundles[index] = ALONE
            segment.positions[index] = 0

    def use_together(self, rows: Sequence[int], time: int) -> None:
        """Hears that a sequence uses chunks, different ones in its order, none of them held.

        They are a bundle from now on. Where the first of them is the last of its bundle, the
        others follow it there.
        """
        if not self._are_one(rows):
            self._join(rows)
        self.use(rows[0], time)

    def put_together(self, rows: Sequence[int], *, before: int) -> None:
        """Makes a bundle of what a sequence has and nobody has used since ``before``; is no use.

        Its last row tells when that was: what was used long after it, somebody else used. Does
        nothing where that one was used since, is held, or was used together with others already.
        """
        segment, index = self._place(rows[-1])
        last = self.of(rows[-1])
        if last < before and segment.bundles[index] == ALONE:
            # As ``single`` has it, what a sequence begins with was used a little later.
            end = min(last + POSITION_MAX + 1, before)
            together = [row for row in rows if self.of(row) < end]
            self.use_together(together, max(map(self.of, together)))
            self.version += 1

    def _are_one(self, rows: Sequence[int]) -> bool:
        """Whether rows are a whole bundle, or one chunk alone."""
        bundles = {int(segment.bundles[index]) for segment, index in map(self._place, rows)}
        if len(bundles) > 1:
            return False
        (bundle,) = bundles
        return len(rows) == (1 if bundle == ALONE else self._bundles.size(bundle))

    def _join(self, rows: Sequence[int]) -> None:
        segment, index = self._place(rows[0])
        bundle = int(segment.bundles[index])
        others = rows[1:]
        if bundle == ALONE or not self._bundles.is_last(bundle, int(segment.positions[index])):
            bundle, others = self._bundles.make(), rows
        for row in others:
            self.leave(row)
            segment, index = self._place(row)
            segment.has_bundles = True
            segment.bundles[index] = bundle
            segment.positions[index] = min(self._bundles.enter(bundle), POSITION_MAX)

    def _place(self, row: int) -> tuple[Segment, int]:
        return self._columns.segments[row >> ROW_BITS], row & ROW_MASK
