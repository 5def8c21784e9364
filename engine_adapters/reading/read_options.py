"""How a reader reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_adapters.reading.read_policy import SPANS_IN_FLIGHT
from engine_adapters.reading.section import Section
from engine_adapters.reading.section_reads import CHUNKS_AHEAD
from kvstored_client import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What all spans of a reader have in common.

    ``order`` is that of the reads within a span; ``from_end`` cuts the last span first.
    ``first_chunks`` gives the pieces of the first span for those of all that is read, and each
    later one has at most twice as many (default: ``span_chunks`` each). ``first_layer`` is asked
    at each span: layers before it are not read. ``sections`` are those to read (default: all of
    the layout), with at most ``window_bytes`` of each read in flight (0: the daemon's choice).
    ``reads_prefix``: the longest stored prefix is read as soon as it is known; otherwise what the
    user names then. A read that brings chunk after chunk and lacks ``chunks_ahead`` of them leaves
    the devices to the next one; it is asked on the thread that makes the calls. That thread sleeps
    until the daemon reports progress, or with ``is_polling`` for a while: many readers of one
    session would all be woken by each report. Of ``spans_in_flight`` one is used while the others
    are on their way.

    ``is_layer_wise``: each layer of all pieces comes before the next one. Then a span has some
    layers of all pieces that are read, or of as many as fit; its bytes are those of
    ``span_chunks`` whole pieces.
    """

    order: Order
    span_chunks: int
    spans_in_flight: int = SPANS_IN_FLIGHT
    from_end: bool = False
    reads_prefix: bool = True
    first_chunks: Callable[[int], int] | None = None
    first_layer: Callable[[], int] = lambda: 0
    sections: Sequence[Section] | None = None
    window_bytes: int = 0
    chunks_ahead: Callable[[], int] = lambda: CHUNKS_AHEAD
    is_polling: bool = False
    is_layer_wise: bool = False
