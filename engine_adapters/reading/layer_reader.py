"""Takes the layers of a whole history in their order, as the spans of a reader bring them."""

from collections.abc import Callable

from engine_adapters.reading.layer_gate import LayerGate
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader

Taker = Callable[[Span, int, range], None]
"""Is shown a span, a layer of it, and those of its chunks that are there."""


class LayerReader:
    """The user of a reader whose options are layer-wise, and of the gates of its history.

    ``taker`` gets each layer of each piece once, first all of one layer, and must be done with it
    when it returns. The thread of the reader's user only; nothing waits but ``wait``.
    """

    def __init__(self, reader: SpanReader, taker: Taker, *, layer_count: int) -> None:
        self._reader = reader
        self._taker = taker
        self._layer_count = layer_count
        self._gate: LayerGate | None = None
        self._layer: int | None = None
        """The layer of the first span that is being taken; None before its first one."""
        self._taken_chunks = 0
        """Of that layer, chunks of the span."""

    @property
    def gate(self) -> LayerGate | None:
        """None before it is known what is stored."""
        return self._gate

    def take(self, slices_max: int) -> int:
        """Takes what has arrived, at most so many slices; how many it took.

        Opens gates, or loses what cannot come any more.
        """
        if self._gate is None:
            self._reader.advance()
            is_ended = self._reader.is_ended
            stored = self._reader.stored
            if stored is None and not is_ended:
                return 0
            pieces = () if stored is None else stored.pieces[: stored.prefix_chunks]
            self._gate = LayerGate(pieces, layer_count=self._layer_count)
        taken = 0
        while not self._gate.is_done and (span := self._reader.first()) is not None:
            taken += self._take_of(span, self._gate, slices_max - taken)
            if self._layer in span.layers:
                return taken
            self._layer = None
            self._reader.give_back(span)
        if self._reader.is_over:
            self._gate.end()
        return taken

    def wait(self, timeout_s: float) -> None:
        """Blocks until ``take`` may find something new, or the time is up."""
        span = self._reader.first()
        if span is None or self._layer is None or span.reads.read_of(self._layer) is None:
            self._reader.wait_news(timeout_s)
        else:
            span.wait(
                min(self._taken_chunks, span.chunk_count - 1), self._layer, timeout_s=timeout_s
            )

    def end(self) -> None:
        """Waits for nothing any more: what is not there is lost."""
        if self._gate is not None:
            self._gate.end()

    def _take_of(self, span: Span, gate: LayerGate, slices_max: int) -> int:
        """Leaves ``_layer`` at what is taken next; at the end it is no layer of the span."""
        left = slices_max
        if self._layer is None:
            self._layer, self._taken_chunks = span.layers.start, 0
        while self._layer < span.layers.stop:
            arrived = span.arrived_chunks(self._layer)
            if arrived < span.chunk_count and (
                not span.is_current or span.is_lost(arrived, self._layer)
            ):
                gate.lose(span.first_chunk + arrived)
            # A session that is over has brought nothing, as far as anybody knows.
            wanted = max(0, min(span.chunk_count, gate.kept - span.first_chunk))
            stop = min(arrived, wanted, self._taken_chunks + left)
            if stop > self._taken_chunks:
                chunks = range(self._taken_chunks, stop)
                self._taker(span, self._layer, chunks)
                gate.note(
                    self._layer, range(span.first_chunk + chunks.start, span.first_chunk + stop)
                )
                left -= len(chunks)
                self._taken_chunks = stop
            if self._taken_chunks < wanted:
                break
            self._layer, self._taken_chunks = self._layer + 1, 0
        return slices_max - left
