"""Which spans of one reader are in use, and which go back."""

import threading

from engine_adapters.reading.span import Span


class HeldSpans:
    """Spans in use, in order, and those given back that are not free yet. Thread-safe.

    ``changed`` guards both; its holder may call any method. Only ``release_given_back`` waits for
    the daemon and for devices. ``newest`` is the span that was added last, None once it was given
    back.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.newest: Span | None = None
        self._spans: list[Span] = []
        self._given_back: list[Span] = []
        self._released_bytes = (0, 0)
        self._released_decode_s = 0.0

    @property
    def spans(self) -> tuple[Span, ...]:
        """Those in use, the ones that were added first at the front."""
        with self.changed:
            return tuple(self._spans)

    @property
    def given_back(self) -> tuple[Span, ...]:
        """Those that wait to be released."""
        with self.changed:
            return tuple(self._given_back)

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far, for all spans there ever were."""
        with self.changed:
            parts = [self._released_bytes]
            parts += [span.read_bytes() for span in (*self._spans, *self._given_back)]
        return sum(device for device, _ in parts), sum(dram for _, dram in parts)

    def decode_s(self) -> float:
        """Processor's time of decoding so far, likewise; 0 without a codec."""
        with self.changed:
            spans = (*self._spans, *self._given_back)
            return self._released_decode_s + sum(span.decode_s for span in spans)

    def add(self, span: Span) -> None:
        """The user may use a span from here on."""
        with self.changed:
            self._spans.append(span)
            self.newest = span

    def give_back(self, span: Span) -> None:
        """The user needs a span no more: it is released now if its reads and uses are over."""
        with self.changed:
            self._spans.remove(span)
            if span is self.newest:
                self.newest = None
            if span.is_finished and span.uses.are_over:
                self._release(span)
            else:
                span.reads.cancel()
                self._given_back.append(span)

    def give_up(self, span: Span) -> None:
        """No more reads of a span will be started; it goes back if nobody uses it."""
        span.reads.give_up()
        with self.changed:
            if span not in self._spans and span not in self._given_back:
                self._given_back.append(span)

    def give_all_back(self) -> None:
        """The user needs no span any more."""
        with self.changed:
            self._given_back += self._spans
            self._spans, self.newest = [], None

    def release_given_back(self) -> None:
        """Waits until nobody uses any more what was given back: the daemon, or a device."""
        for span in self.given_back:
            self._release(span)

    def _release(self, span: Span) -> None:
        """Its bytes count all the time."""
        device_bytes, dram_bytes = span.release()
        with self.changed:
            if span in self._given_back:
                self._given_back.remove(span)
            device_before, dram_before = self._released_bytes
            self._released_bytes = (device_before + device_bytes, dram_before + dram_bytes)
            self._released_decode_s += span.decode_s
