"""Least recently used, for more keys than objects could be kept for."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

QUEUE_ROWS = 32768
"""About so many rows are sorted at a time."""
ROWS_AT_ONCE = 1 << 16
"""After so many rows that were looked at others have a turn."""
SAMPLE_STEP = 64
"""One row in so many is looked at to learn which uses are old."""


class RowTimes(Protocol):
    """The times of rows, in segments of equal length.

    Later uses have larger times, and a row that holds nothing has a time that is larger than all.
    Rows have the same time when they were used together; these go by their positions, the last
    first.
    """

    version: int
    """Changes when rows get other times than those of their uses."""
    pause: Callable[[], None]
    """Lets others use, add and remove rows for a moment."""

    def segments(self, step: int = 1, /) -> Iterator[NDArray[np.uint64]]:
        """The times of every ``step``th row of each segment."""

    def positions(self, number: int, indices: NDArray[np.int64], /) -> NDArray[np.uint16]:
        """The positions of rows of a segment, by their index in it; shapes [n], [n]."""

    def of(self, row: int, /) -> int:
        """The time of a row."""


class TimedRows(Protocol):
    """Rows with the times of their last uses."""

    @property
    def times(self) -> RowTimes:
        """These times, as they are when it is asked."""

    @property
    def clock(self) -> int:
        """The time of the next use."""

    def row_count(self, group: int | None, /) -> int:
        """Rows in use of a group, or of all; as many or more where that is not known."""

    def is_of_class(
        self, segment: int, indices: NDArray[np.int64], group: int | None, /
    ) -> NDArray[np.bool_]:
        """Which rows of a segment are of a group, or of these rows at all."""


@dataclass(slots=True)
class _Queue:
    """The oldest rows of a group with their times as they were when they were sorted.

    ``passed`` were handed out already, ``ahead`` follow, the next one last. Together they
    hold every row that was not used since ``horizon``; the time of those that were
    used or are gone is another one now.
    """

    horizon: int = 0
    passed: list[tuple[int, int]] = field(default_factory=list)
    ahead: list[tuple[int, int]] = field(default_factory=list)


class UseOrder:
    """Hands out rows in the order of their last use. The owner serialises the calls.

    A use costs nothing here: only the times are kept. The order is made when it is asked
    for, of about ``QUEUE_ROWS`` rows at once, which takes two looks at all times: some
    60 ms with ten million rows, a microsecond for each row that is handed out.
    """

    def __init__(self, rows: TimedRows) -> None:
        self._rows = rows
        self._queues: dict[int | None, _Queue] = {}
        self._version = rows.times.version

    def victims(self, group: int | None = None) -> Iterator[int]:
        """Rows of one group, or of all, the oldest first; of equal ones that behind the others.

        The rows must not change while the iterator is in use, but in its pauses: it has one after
        each ROWS_AT_ONCE rows that it looks at to put more of them in order. What was handed out
        before a pause may have been used or emptied in it; what follows was not. Rows that are used
        in a pause are left out: they would keep this busy without end.
        """
        last = self._rows.clock - 1
        if self._version != self._rows.times.version:
            self._version = self._rows.times.version
            self._queues.clear()
        if self._rows.row_count(group) == 0:
            return
        queue = self._queues.setdefault(group, _Queue())
        queue.passed = [entry for entry in queue.passed if self._is_current(entry)]
        yield from [row for row, _ in queue.passed]
        while queue.ahead or self._extend(queue, group, last):
            entry = queue.ahead.pop()
            if self._is_current(entry):
                queue.passed.append(entry)
                yield entry[0]

    def _is_current(self, entry: tuple[int, int]) -> bool:
        """Whether a row was neither used nor emptied since it was sorted."""
        row, time = entry
        return self._rows.times.of(row) == time

    def _extend(self, queue: _Queue, group: int | None, last: int) -> bool:
        """Adds the next oldest rows, used up to ``last``; False when there are none."""
        while (horizon := self._next_horizon(queue.horizon, group, last)) is not None:
            queue.ahead = self._between(queue.horizon, horizon, group)
            queue.horizon = horizon
            if queue.ahead:
                return True
        return False

    def _next_horizon(self, horizon: int, group: int | None, last: int) -> int | None:
        """A time up to which there are about QUEUE_ROWS rows more; None when there are none."""
        if horizon >= last:
            return None
        wanted = QUEUE_ROWS // SAMPLE_STEP
        if self._rows.row_count(group) <= QUEUE_ROWS:
            return last
        samples = []
        for number, sampled in self._segments(SAMPLE_STEP):
            indices = np.flatnonzero((sampled > horizon) & (sampled <= last))
            is_wanted = self._rows.is_of_class(number, indices * SAMPLE_STEP, group)
            samples.append(sampled[indices[is_wanted]])
        sample = np.concatenate(samples)
        if len(sample) <= wanted:
            return last
        return int(np.partition(sample, wanted)[wanted])

    def _between(self, horizon: int, limit: int, group: int | None) -> list[tuple[int, int]]:
        """Rows of a group whose last use was after ``horizon`` up to ``limit``, the last first.

        Others use rows meanwhile, in the pauses. A use gives a row a time after ``limit``, so that
        the row is left out, or is not current when it is its turn. No row gets a time up to
        ``limit`` but with another ``version``, after which the order is made again.
        """
        found_rows, found_times = [np.zeros(0, np.int64)], [np.zeros(0, np.uint64)]
        found_positions = [np.zeros(0, np.uint16)]
        first_row = 0
        for number, times in self._segments():
            indices = np.flatnonzero((times > horizon) & (times <= limit))
            indices = indices[self._rows.is_of_class(number, indices, group)]
            found_rows.append(indices + first_row)
            found_times.append(times[indices])
            found_positions.append(self._rows.times.positions(number, indices))
            first_row += len(times)
        rows, uses = np.concatenate(found_rows), np.concatenate(found_times)
        # Positions fall where times rise.
        order = np.lexsort((~np.concatenate(found_positions), uses))[::-1]
        return list(zip(rows[order].tolist(), uses[order].tolist(), strict=True))

    def _segments(self, step: int = 1) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Number and times of every segment, with a pause between ROWS_AT_ONCE rows and more.

        A small table has none. Times of the segment after a pause may be those of before it.
        """
        looked_at = 0
        for number, times in enumerate(self._rows.times.segments(step)):
            if looked_at >= ROWS_AT_ONCE:
                looked_at = 0
                self._rows.times.pause()
            yield number, times
            looked_at += len(times)
