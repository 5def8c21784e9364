"""Which chunks of a history are on their way, how long they may be, and which are in the arena."""

from collections.abc import Callable, Iterable

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from kvstored_client import SliceState


class Patience:
    """Counts the time in which nothing could be done; computing does not count.

    Not thread-safe.
    """

    def __init__(self, timeout_s: float, clock: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._clock = clock
        self._waited_s = 0.0
        self._since_s: float | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether nothing can be done now."""
        return self._since_s is not None

    @property
    def waited_s(self) -> float:
        """Seconds so far."""
        if self._since_s is None:
            return self._waited_s
        return self._waited_s + self._clock() - self._since_s

    def remaining_s(self) -> float:
        """How long the store may still be waited for."""
        return max(0.0, self._timeout_s - self.waited_s)

    def begin_wait(self) -> None:
        """Nothing can be done from here on. A second call does nothing."""
        if self._since_s is None:
            self._since_s = self._clock()

    def end_wait(self) -> None:
        """Something can be done again. A second call does nothing."""
        self._waited_s = self.waited_s
        self._since_s = None


class AwaitedChunks:
    """Chunks that a reader was asked for and that are neither taken nor lost. One thread only."""

    def __init__(self, chunks: Iterable[int] = ()) -> None:
        self._awaited = set(chunks)
        self._arrived: set[int] = set()
        """Those of them that wait in the arena to be taken."""
        self._lost: set[int] = set()

    @property
    def are_over(self) -> bool:
        """Whether none is left."""
        return not self._awaited

    def is_lost(self, chunk: int) -> bool:
        """Whether it was asked for and never came."""
        return chunk in self._lost

    def look(self, reader: SpanReader) -> tuple[tuple[Span, ...], set[int], set[int]]:
        """Spans of the reader, and chunks that have arrived, or were lost, since the last look."""
        # In this order: what it has handed over before it ended is among the spans.
        is_ended = reader.is_ended
        spans = reader.spans
        arrived: set[int] = set()
        lost: set[int] = set()
        in_spans: set[int] = set()
        for span in spans:
            awaited = self._awaited.intersection(chunks_of(span))
            in_spans |= awaited
            # A lost session brings nothing more. It may be lost right after this look:
            # each session has memory of its own, so nobody overwrites what lies here.
            if not span.is_current:
                lost |= awaited
                continue
            for chunk in awaited - self._arrived:
                state = span.state(chunk - span.first_chunk)
                if state is SliceState.RESIDENT:
                    arrived.add(chunk)
                elif state is not SliceState.PENDING:
                    lost.add(chunk)
        if is_ended:
            lost |= self._awaited - in_spans
        self._lost |= lost
        self._awaited -= lost
        self._arrived = (self._arrived | arrived) - lost
        return spans, arrived, lost

    def arrived_of(self, span: Span) -> list[int]:
        """Those of a span that can be taken, in order."""
        return sorted(self._arrived.intersection(chunks_of(span)))

    def last_of(self, span: Span) -> int | None:
        """The last one of a span that is awaited; None where none is."""
        return max(self._awaited.intersection(chunks_of(span)), default=None)

    def take(self, chunks: Iterable[int]) -> None:
        """They are in the cache."""
        self._awaited.difference_update(chunks)
        self._arrived &= self._awaited

    def reach(self, chunk: int) -> None:
        """Those before this one are awaited no more."""
        self._awaited = {each for each in self._awaited if each >= chunk}
        self._arrived &= self._awaited


def chunks_of(span: Span) -> range:
    """Those of the history that a span brings."""
    return range(span.first_chunk, span.first_chunk + span.chunk_count)
