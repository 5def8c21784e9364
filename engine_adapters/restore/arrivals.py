"""The loading side of one restoration: what is there, and when the rest will be."""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Sequence

from engine_adapters.restore.ranges import true_ranges
from engine_adapters.restore.rates import Rates

OVERDUE_RATIO = 1.5
"""Times the usual time between two chunks: a reader silent for longer counts as slow."""


class Arrivals:
    """Chunks that come in ``order``, more or less. Not thread-safe."""

    def __init__(
        self, order: Sequence[int], rates: Rates, *, latency_s: float, now_s: float
    ) -> None:
        self._rates = rates
        self._places = {chunk: place for place, chunk in enumerate(order)}
        self._outstanding = list(range(len(order)))
        """Places of those that are on their way, ascending."""
        self._taken: set[int] = set()
        self._lost: set[int] = set()
        self._loadable = self._loadable_ranges()
        self._now_s = now_s
        self._last_arrival_s = now_s + latency_s

    def observe(self, now_s: float, arrived: Collection[int], lost: Collection[int]) -> None:
        """Chunks that arrived since the last call, and those that never will.

        One that has arrived may be lost all the same, as long as it is not taken.
        """
        self.forget(arrived)
        self.forget(lost)
        if arrived:
            self._measure(len(arrived), now_s)
        self._now_s = now_s
        if lost:
            self._lost.update(lost)
            self._loadable = self._loadable_ranges()

    def take(self, chunks: Iterable[int]) -> None:
        """These have arrived and are in the cache now."""
        self._taken.update(chunks)

    def forget(self, chunks: Iterable[int]) -> None:
        """Nobody waits for these any more; those that never were in the order are ignored."""
        for chunk in chunks:
            place = self._places.get(chunk, -1)
            index = bisect_left(self._outstanding, place)
            if self._outstanding[index : index + 1] == [place]:
                del self._outstanding[index]

    def is_taken(self, chunk: int) -> bool:
        """Whether the chunk is in the cache."""
        return chunk in self._taken

    def ranges_from(self, first_chunk: int) -> list[range]:
        """Ranges of chunks from this one on that are there or on their way."""
        return [
            range(max(chunks.start, first_chunk), chunks.stop)
            for chunks in self._loadable
            if chunks.stop > first_chunk
        ]

    def count_to(self, chunk: int) -> int:
        """Of the chunk and all before it in the order those that have not arrived."""
        return bisect_right(self._outstanding, self._places[chunk])

    def wait_s(self, chunk: int) -> float:
        """Until the chunk and all before it in the order have arrived; 0 if they have.

        A reader that is silent for longer than expected is as slow as it is silent.
        """
        count = self.count_to(chunk)
        if count == 0:
            return 0.0
        silent_s = self._now_s - self._last_arrival_s
        chunk_s = self._rates.chunk_s.value
        if silent_s > OVERDUE_RATIO * chunk_s:
            return count * silent_s
        return max(0.0, chunk_s - silent_s) + (count - 1) * chunk_s

    def _loadable_ranges(self) -> tuple[range, ...]:
        stop = max(self._places, default=-1) + 1
        return true_ranges(
            [chunk in self._places and chunk not in self._lost for chunk in range(stop)]
        )

    def _measure(self, count: int, now_s: float) -> None:
        """So many chunks arrived since the last arrival: none before the last look, none after.

        An arrival is seen up to a step late, but both bounds of the time between two
        arrivals follow. What was expected stands as far as it lies between them. Where no
        other chunk is on its way, that none has come since tells nothing.
        """
        elapsed_s = max(0.0, now_s - self._last_arrival_s)
        at_least_s = max(0.0, self._now_s - self._last_arrival_s) / count
        if self._outstanding:
            at_least_s = max(at_least_s, elapsed_s / (count + 1))
        chunk_s = min(max(self._rates.chunk_s.value, at_least_s), elapsed_s / count)
        self._rates.measure_chunks(count, chunk_s)
        self._last_arrival_s += count * chunk_s
