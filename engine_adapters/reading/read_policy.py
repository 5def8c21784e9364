"""What a reader does next, and how much of the pieces its next span brings. Pure."""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

SPANS_IN_FLIGHT = 2
"""Spans in the arena at once, unless told otherwise: one is used, one is on its way."""


class Step(StrEnum):
    """What comes next."""

    START = "start"
    """The next read of the newest span."""
    OPEN = "open"
    """The next span."""
    AWAIT_READ = "await read"
    """Nothing, until the read that was started last is nearly over."""
    AWAIT_SPAN = "await span"
    """Nothing, until a span is given back."""
    AWAIT_ROOM = "await room"
    """Nothing, until the arena has room for one piece."""
    END = "end"
    """Nothing any more."""


class ReadPolicy:
    """Cuts stretches of pieces into spans, one stretch after the other. Not thread-safe.

    A span has ``span_chunks`` pieces at most, the first one ``first_chunks``, and each later one
    at most twice as many as the one before was meant to have. ``from_end`` cuts the last pieces
    of a stretch first. Where there is no room it asks for half as many, for this span alone.

    With ``bands`` of layers, all pieces come once for each: a span has one band of some.
    """

    def __init__(
        self,
        stretches: Iterable[range],
        *,
        span_chunks: int,
        first_chunks: Callable[[int], int] | None = None,
        from_end: bool = False,
        bands: Sequence[range] = (),
        spans_in_flight: int = SPANS_IN_FLIGHT,
    ) -> None:
        """``first_chunks`` gives the pieces of the first span for those of all stretches."""
        self._stretches = [stretch for stretch in stretches if stretch]
        self._bands = list(bands)
        self._all_stretches = list(self._stretches)
        self._span_chunks = self._next_chunks = span_chunks
        self._from_end = from_end
        self._spans_in_flight = spans_in_flight
        self._refused_chunks: int | None = None
        if first_chunks is not None:
            self._next_chunks = max(1, min(span_chunks, first_chunks(self.chunk_count)))

    @property
    def chunk_count(self) -> int:
        """Pieces that were not taken yet, of the band of ``next_span``."""
        return sum(map(len, self._stretches))

    @property
    def layers(self) -> range | None:
        """The band of ``next_span``; None without bands, and when nothing is left."""
        return self._bands[0] if self._bands else None

    def step(self, *, in_flight: int, newest_lacks_reads: bool, is_nearly_over: bool) -> Step:
        """What to do with ``in_flight`` spans that nobody gave back.

        ``is_nearly_over`` says whether the read that was started last is nearly over, and
        ``newest_lacks_reads`` whether its span has reads that were not started. The first is
        True and the second False where that span was given back.
        """
        if not (newest_lacks_reads or self._stretches):
            return Step.END
        if not is_nearly_over:
            return Step.AWAIT_READ
        if newest_lacks_reads:
            return Step.START
        return Step.OPEN if in_flight < self._spans_in_flight else Step.AWAIT_SPAN

    def reach(self, chunk: int) -> None:
        """Nobody needs pieces before this one any more."""
        self._stretches = _stretches_from(chunk, self._stretches)
        self._all_stretches = _stretches_from(chunk, self._all_stretches)
        self._begin_band()

    def next_span(self) -> range:
        """The pieces of the next span; none when nothing is left."""
        if not self._stretches:
            return range(0)
        stretch = self._stretches[0]
        count = min(self._next_chunks, len(stretch))
        if self._refused_chunks is not None:
            count = min(count, self._refused_chunks // 2)
        return stretch[-count:] if self._from_end else stretch[:count]

    def refuse(self) -> bool:
        """There was no room for ``next_span``; False when nothing smaller can be asked for.

        Then the next try begins with a whole span: there may be more room by then.
        """
        count = len(self.next_span())
        self._refused_chunks = count if count > 1 else None
        return count > 1

    def take(self) -> range:
        """``next_span``, which is opened now."""
        span = self.next_span()
        stretch = self._stretches[0]
        rest = stretch[: -len(span)] if self._from_end else stretch[len(span) :]
        self._stretches[:1] = [rest] if rest else []
        self._refused_chunks = None
        self._next_chunks = min(2 * self._next_chunks, self._span_chunks)
        self._begin_band()
        return span

    def _begin_band(self) -> None:
        """The next one, once all pieces have this one."""
        if not self._stretches and self._bands:
            del self._bands[0]
            self._stretches = list(self._all_stretches) if self._bands else []


def _stretches_from(chunk: int, stretches: Iterable[range]) -> list[range]:
    parts = (
        range(max(stretch.start, min(chunk, stretch.stop)), stretch.stop) for stretch in stretches
    )
    return [part for part in parts if part]
