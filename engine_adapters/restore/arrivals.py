"""The loading side of one restoration: what is there, and when the rest will be."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

from engine_adapters.restore.ranges import runs
from engine_adapters.restore.rates import Rates

OVERDUE_RATIO = 1.5
"""Times the usual time between two chunks: a reader silent for longer counts as slow."""


class Arrivals:
    """Chunks that come in ``order``, more or less. Not thread-safe."""

    def __init__(
        self, order: Sequence[int], rates: Rates, *, latency_s: float, now_s: float
    ) -> None:
        self._rates = rates
        self._turns = {chunk: turn for turn, chunk in enumerate(order)}
        self._outstanding = list(range(len(order)))
        """Turns of those that are on their way, ascending."""
        self._resident: set[int] = set()
        self._lost: set[int] = set()
        self._runs = self._loadable_runs()
        self._now_s = now_s
        self._last_arrival_s = now_s + latency_s

    def observe(self, now_s: float, resident: Collection[int], lost: Collection[int]) -> None:
        """Chunks that arrived since the last call, and those that never will."""
        if resident:
            self._measure(len(resident), now_s)
        self._now_s = now_s
        self._resident.update(resident)
        self.forget(resident)
        self.forget(lost)
        if lost:
            self._lost.update(lost)
            self._runs = self._loadable_runs()

    def forget(self, chunks: Iterable[int]) -> None:
        """Nobody waits for these any more; those that never were in the order are ignored."""
        for chunk in chunks:
            turn = self._turns.get(chunk, -1)
            place = bisect_left(self._outstanding, turn)
            if self._outstanding[place : place + 1] == [turn]:
                del self._outstanding[place]

    def is_resident(self, chunk: int) -> bool:
        """Whether the chunk is there."""
        return chunk in self._resident

    def runs_from(self, first_chunk: int) -> list[range]:
        """Runs of chunks from this one on that are there or on their way."""
        return [
            range(max(run.start, first_chunk), run.stop)
            for run in self._runs
            if run.stop > first_chunk
        ]

    def wait_s(self, chunk: int) -> float:
        """Until the chunk and all before it in the order are there; 0 if they are.

        A reader that is silent for longer than expected is as slow as it is silent.
        """
        count = bisect_right(self._outstanding, self._turns[chunk])
        if count == 0:
            return 0.0
        silent_s = self._now_s - self._last_arrival_s
        chunk_s = self._rates.chunk_s.value
        if silent_s > OVERDUE_RATIO * chunk_s:
            return count * silent_s
        return max(0.0, chunk_s - silent_s) + (count - 1) * chunk_s

    def _loadable_runs(self) -> tuple[range, ...]:
        stop = max(self._turns, default=-1) + 1
        return runs([chunk in self._turns and chunk not in self._lost for chunk in range(stop)])

    def _measure(self, count: int, now_s: float) -> None:
        """So many chunks arrived since the last arrival, and not one more.

        An arrival is seen up to a step late, but both bounds of the time between two
        arrivals follow. What was expected stands as far as it lies between them.
        """
        elapsed_s = max(0.0, now_s - self._last_arrival_s)
        expected_s = self._rates.chunk_s.value
        chunk_s = min(max(expected_s, elapsed_s / (count + 1)), elapsed_s / count)
        self._rates.chunk_s.add(count * chunk_s, units=count)
        self._last_arrival_s += count * chunk_s
