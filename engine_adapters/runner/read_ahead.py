"""Reads a history span after span, the next one while the last one is used."""

from collections import deque
from collections.abc import Callable, Sequence

from engine_adapters.runner.decoded_span import open_span
from engine_adapters.runner.section import Section, sections_of
from engine_adapters.runner.span import Span
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order

SPANS_IN_FLIGHT = 2
"""Spans in the arena at once: one is used, one is on its way."""


class ReadAhead:
    """The spans of one history, in order. One thread only; ``advance`` it now and then.

    ``remaining_s`` tells how long the store may still be waited for: no read starts when
    nothing remains. ``sections`` are those to read (default: all of the layout), with at most
    ``window_bytes`` of each read in flight (0: the daemon's choice).
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        keys: Sequence[bytes],
        *,
        order: Order,
        span_chunks: int,
        remaining_s: Callable[[], float],
        sections: Sequence[Section] | None = None,
        window_bytes: int = 0,
    ) -> None:
        self.device_bytes = 0
        self.dram_bytes = 0
        self._client = client
        self._format = state_format
        self._keys = keys
        self._order = order
        self._span_chunks = span_chunks
        self._sections = sections_of(state_format.layout) if sections is None else sections
        self._remaining_s = remaining_s
        self._window_bytes = window_bytes
        self._spans: deque[Span] = deque()
        self._next_chunk = 0
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """Whether the last call of ``first`` found no span: none will come."""
        return self._is_over

    def first(self) -> Span | None:
        """The span to use now; None when there are no more, or none fits into the arena."""
        self.advance()
        self._is_over = not self._spans
        return self._spans[0] if self._spans else None

    def wait_news(self, timeout_s: float) -> None:
        """Blocks until the next read may start, or the time is up."""
        if self._spans:
            self._spans[-1].wait_turn(timeout_s)

    def read_bytes(self) -> tuple[int, int]:
        """Bytes of the spans that were popped, from devices and from DRAM."""
        return self.device_bytes, self.dram_bytes

    def advance(self) -> None:
        """Starts the reads whose turn has come; never blocks for longer than a call takes."""
        while not self._spans or self._spans[-1].lets_next_start:
            timeout_ms = int(self._remaining_s() * 1000)
            if timeout_ms <= 0:
                return
            if not self._spans or self._spans[-1].is_asked_for:
                span = self._open() if len(self._spans) < SPANS_IN_FLIGHT else None
                if span is None:
                    return
                self._spans.append(span)
            self._spans[-1].start_read(timeout_ms)

    def pop(self) -> None:
        """Releases the first span."""
        device_bytes, dram_bytes = self._spans.popleft().release()
        self.device_bytes += device_bytes
        self.dram_bytes += dram_bytes

    def close(self) -> None:
        """Releases every span."""
        while self._spans:
            self.pop()

    def _open(self) -> Span | None:
        """A region for as many chunks as fit; None when not even one does."""
        chunk_count = min(self._span_chunks, len(self._keys) - self._next_chunk)
        region = None
        while chunk_count and region is None:
            region = self._client.allocate(
                sum(section.region_bytes(chunk_count) for section in self._sections)
            )
            if region is None:
                chunk_count //= 2
        if region is None:
            return None
        first_chunk, self._next_chunk = self._next_chunk, self._next_chunk + chunk_count
        span = open_span(
            self._client,
            self._format,
            region,
            keys=self._keys[first_chunk : self._next_chunk],
            first_chunk=first_chunk,
            order=self._order,
            sections=self._sections,
        )
        span.window_bytes = self._window_bytes
        return span
