"""Reads chunks of one history span after span, on a thread of its own."""

import logging
import threading
import time
from collections.abc import Sequence

from engine_adapters.runner.arena_share import LOOK_INTERVAL_S, ArenaShare
from engine_adapters.runner.decoded_span import DecodedSpan, open_span
from engine_adapters.runner.span import Span
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Lease, Order, Region

LOGGER = logging.getLogger(__name__)

THREAD_NAME = "span-reader"

SPANS_IN_FLIGHT = 2
"""Spans in the arena at once: one is used, one is on its way."""

ROOM_INTERVAL_S = 0.01
"""How often a reader that holds nothing looks for room: snapshots give it back untold."""


class SpanReader:
    """Makes every call to the store that one restoration needs, so that its engine makes none.

    It finds out which chunks are stored and keeps these from eviction (``is_stored``), reads
    those that ``load`` names, and releases everything in the end. The engine's thread looks
    at the spans, which never waits, gives them back one by one, and closes the reader, which
    then ends by itself. Whatever fails ends the reading; nothing is raised.

    Invariant: a span belongs to the engine from when it is in ``spans`` until it gives it
    back or closes the reader; only then its region is released, and never before every read
    into it is over: while more of them may be started only this thread releases it.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        share: ArenaShare,
        token_ids: Sequence[int],
        *,
        order: Order,
        span_chunks: int,
        timeout_s: float,
        from_end: bool = False,
    ) -> None:
        """``order`` is that of the reads within a span; ``from_end`` cuts the last span first.

        ``timeout_s`` is that of each read, and how long room in the arena is waited for.
        """
        self._client = client
        self._format = state_format
        self._share = share
        self._token_ids = tuple(token_ids)
        self._order = order
        self._span_chunks = span_chunks
        self._timeout_s = timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._from_end = from_end
        self._changed = threading.Condition()
        self._keys: list[bytes] = []
        self._is_stored: tuple[bool, ...] | None = None
        self._runs: tuple[range, ...] | None = None
        self._spans: list[Span] = []
        self._given_back: list[Span] = []
        self._released_bytes = (0, 0)
        self._released_decode_s = 0.0
        self._reached_chunks = 0
        self._is_closed = False
        self._is_ended = False
        self._news_count = self._news_seen = 0
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it still holds or does anything."""
        return self._thread.is_alive()

    @property
    def is_stored(self) -> tuple[bool, ...] | None:
        """Of each complete chunk of the tokens whether it is stored; None before that is known."""
        return self._is_stored

    @property
    def is_ended(self) -> bool:
        """Whether no more spans will come. Ask before ``spans``."""
        return self._is_ended

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans whose reads have begun, those that come first at the front."""
        with self._changed:
            return tuple(self._spans)

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far."""
        with self._changed:
            parts = [self._released_bytes]
            parts += [span.read_bytes() for span in (*self._spans, *self._given_back)]
        return sum(device for device, _ in parts), sum(dram for _, dram in parts)

    def decode_s(self) -> float:
        """Processor's time of decoding so far; 0 without a codec."""
        with self._changed:
            spans = (*self._spans, *self._given_back)
            return self._released_decode_s + sum(map(_decode_s, spans))

    def load(self, runs: Sequence[range]) -> None:
        """Reads these runs of chunks, one after the other, each span after span."""
        with self._changed:
            self._runs = tuple(runs)
            self._tell()

    def reach(self, chunk: int) -> None:
        """Chunks before this one are not needed any more; those in flight are overtaken."""
        self._reached_chunks = chunk
        for span in self.spans:
            span.reach(min(max(0, chunk - span.first_chunk), span.chunk_count))

    def give_back(self, span: Span) -> None:
        """The engine has taken what it wants of a span; never waits."""
        with self._changed:
            self._spans.remove(span)
            if span.is_finished:
                self._release(span)
            else:
                span.cancel()
                self._given_back.append(span)
            self._tell()

    def wait_news(self, timeout_s: float) -> None:
        """Blocks until something has happened since the last call: a read begun, an end, ..."""
        with self._changed:
            self._changed.wait_for(lambda: self._news_count != self._news_seen, timeout_s)
            self._news_seen = self._news_count

    def _tell(self) -> None:
        """Wakes both sides; called with the lock held."""
        self._news_count += 1
        self._changed.notify_all()

    def close(self) -> None:
        """Stops reading and releases everything soon; returns at once."""
        with self._changed:
            self._is_closed = True
            for span in self._spans:
                span.cancel()
            self._tell()

    def join(self) -> None:
        """Waits until everything is released; every call has a deadline, so this ends."""
        self._thread.join()

    def _run(self) -> None:
        lease: Lease | None = None
        try:
            lease = self._open()
            self._feed()
        except Exception:
            LOGGER.exception("reading a history failed; what is missing is computed")
        finally:
            self._end()
            self._share.leave(self)
            if lease is not None:
                lease.release()

    def _open(self) -> Lease | None:
        """Learns which chunks are stored, and keeps them."""
        layout = self._format.layout
        self._keys = self._client.prefix_keys(layout, self._token_ids)
        lease = None
        if self._keys:
            lease = self._client.pin(layout, self._keys, lease_ms=int(self._timeout_s * 1000))
        with self._changed:
            self._is_stored = lease.is_pinned if lease else (False,) * len(self._keys)
            self._tell()
        return lease

    def _feed(self) -> None:
        """Reads everything that is still needed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._runs is not None)
        runs = self._runs or ()
        chunk_count = min(SPANS_IN_FLIGHT * self._span_chunks, sum(map(len, runs)))
        if not chunk_count or not self._share.enter(
            self, self._format.held_bytes(chunk_count), is_wanted=self._may_wait
        ):
            return
        for run in runs:
            rest = run
            while rest := range(max(rest.start, self._reached_chunks), rest.stop):
                region, count = self._allocate(min(self._span_chunks, len(rest)))
                if region is None:
                    return
                chunks, rest = _cut(rest, count, from_end=self._from_end)
                span = open_span(
                    self._client,
                    self._format,
                    region,
                    keys=self._keys[chunks.start : chunks.stop],
                    first_chunk=chunks.start,
                    order=self._order,
                )
                self._read(span)

    def _allocate(self, chunk_count: int) -> tuple[Region | None, int]:
        """Room for so many chunks or fewer; None when the reader is closed or finds none."""
        is_possible = self._format.span_bytes(1) <= self._client.region_bytes_max
        while is_possible and self._wait_room():
            region = self._client.allocate(self._format.span_bytes(chunk_count), connects=False)
            if region is not None:
                return region, chunk_count
            if chunk_count > 1:
                chunk_count //= 2
            elif not self._wait_given_back():
                break
        return None, 0

    def _wait_room(self) -> bool:
        """Blocks until another span may be in flight; False when the reader is closed."""
        while True:
            self._release_given_back()
            with self._changed:
                if self._is_closed:
                    return False
                if len(self._spans) < SPANS_IN_FLIGHT:
                    return True
                self._changed.wait()

    def _wait_given_back(self) -> bool:
        """Blocks until there may be more room in the arena; False when it waited long enough."""
        with self._changed:
            held = len(self._spans)
            if held:
                self._changed.wait_for(lambda: self._is_closed or len(self._spans) < held)
                return True
            self._changed.wait_for(lambda: self._is_closed, ROOM_INTERVAL_S)
        # A client without a session has no arena until something connects it again.
        return self._client.epoch != 0 and self._may_wait()

    def _may_wait(self) -> bool:
        return not self._is_closed and time.monotonic() < self._deadline_s

    def _read(self, span: Span) -> None:
        """Starts all reads of a span; one that cannot be started loses what it would bring."""
        try:
            self._start_reads(span)
        except Exception:
            span.give_up()
            with self._changed:
                if span not in self._spans and span not in self._given_back:
                    self._given_back.append(span)
            raise

    def _start_reads(self, span: Span) -> None:
        """Starts each read of a span when the one before is nearly over."""
        timeout_ms = int(self._timeout_s * 1000)
        is_wanted = is_new = True
        while is_wanted and not span.is_asked_for:
            span.start_read(timeout_ms)
            with self._changed:
                if is_new:
                    self._spans.append(span)
                    is_new = False
                span.reach(min(max(0, self._reached_chunks - span.first_chunk), span.chunk_count))
                self._tell()
            while (is_wanted := self._is_wanted(span)) and not span.wait_turn(LOOK_INTERVAL_S):
                self._release_given_back()

    def _is_wanted(self, span: Span) -> bool:
        with self._changed:
            return not self._is_closed and span in self._spans

    def _release_given_back(self) -> None:
        with self._changed:
            given_back = tuple(self._given_back)
        for span in given_back:
            self._release(span)

    def _release(self, span: Span) -> None:
        """Waits until the daemon lets go of a span; its bytes count all the time."""
        device_bytes, dram_bytes = span.release()
        with self._changed:
            if span in self._given_back:
                self._given_back.remove(span)
            device_before, dram_before = self._released_bytes
            self._released_bytes = (device_before + device_bytes, dram_before + dram_bytes)
            self._released_decode_s += _decode_s(span)

    def _end(self) -> None:
        """Releases everything, each span when the engine needs it no more."""
        with self._changed:
            self._is_ended = True
            self._tell()
        is_held = True
        while is_held:
            self._release_given_back()
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_closed or self._given_back or not self._spans
                )
                if self._is_closed:
                    self._given_back += self._spans
                    self._spans = []
                is_held = bool(self._given_back or self._spans)


def _decode_s(span: Span) -> float:
    return span.decode_s if isinstance(span, DecodedSpan) else 0.0


def _cut(chunks: range, count: int, *, from_end: bool) -> tuple[range, range]:
    """``count`` of the chunks, and those that are left."""
    if from_end:
        middle = chunks.stop - count
        return range(middle, chunks.stop), range(chunks.start, middle)
    middle = chunks.start + count
    return range(chunks.start, middle), range(middle, chunks.stop)
