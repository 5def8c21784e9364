"""Reads stored pieces span after span, on a thread of its own or driven by its caller."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.held_spans import HeldSpans
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.read_policy import ReadPolicy, Step
from engine_adapters.reading.slice_format import SliceFormat
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_opener import SpanOpener
from engine_adapters.reading.stored_pieces import Finder, StoredPieces
from kvstored_client import Client

LOGGER = logging.getLogger(__name__)

THREAD_NAME = "span-reader"

READ_INTERVAL_S = 0.01
"""How often a reader asks how early the next read may begin."""

ROOM_INTERVAL_S = 0.01
"""How often a reader that holds nothing looks for room: snapshots give it back untold."""


class SpanReader:
    """Makes every call to the store that one restoration needs.

    It finds out which pieces are stored and keeps these from eviction (``stored``), reads the
    longest stored prefix or what ``load`` names, and releases everything in the end. The user looks
    at the spans, which never waits, gives them back one by one, and closes the reader.

    Once ``start`` was called a thread makes the calls, so that the user's makes none and never
    waits; the reader ends by itself after ``close``, and whatever fails ends the reading: nothing
    is raised. Without ``start`` the user's own thread makes them, in ``advance``,
    ``first``, ``give_back`` and ``close``; then errors that are not the store's are raised.

    Invariant: a span belongs to the user from when it is in ``spans`` until it gives it
    back or closes the reader; only then its region is released, and never before every read
    into it is over: while more of them may be started only the reader's thread releases it.
    """

    def __init__(
        self,
        client: Client,
        slice_format: SliceFormat,
        find: Finder,
        options: ReadOptions,
        *,
        remaining_s: Callable[[], float],
        share: ArenaShare | None = None,
    ) -> None:
        """``remaining_s`` is the timeout of the next read; none starts when nothing remains."""
        self._opener = SpanOpener(client, slice_format, options)
        self._find = find
        self._options = options
        self._remaining_s = remaining_s
        self._share = share
        self._held = HeldSpans()
        self._stored: StoredPieces | None = None
        self._policy: ReadPolicy | None = None
        self._reached_chunks = 0
        self._is_closed = False
        self._is_ended = False
        self._has_news = False
        self._thread: threading.Thread | None = None
        self._room_until_s = 0.0
        self._lacks_room = False

    def start(self, *, room_timeout_s: float) -> Self:
        """Lets a thread make all calls; it waits so long for room in the arena, all in all."""
        self._room_until_s = time.monotonic() + room_timeout_s
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()
        return self

    @property
    def is_running(self) -> bool:
        """Whether its thread still holds or does anything."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def stored(self) -> StoredPieces | None:
        """Which pieces there are, and of each whether it is stored; None before that is known."""
        return self._stored

    @property
    def is_ended(self) -> bool:
        """Whether no more spans will come. Ask before ``spans``."""
        return self._is_ended

    @property
    def is_over(self) -> bool:
        """Whether there is no span and none will come.

        Without a thread also while the arena has no room: nobody would wait for it.
        """
        return (self._is_ended or self._lacks_room) and not self.spans

    @property
    def is_reading(self) -> bool:
        """Whether anything that was asked for is on its way, or about to be asked for."""
        is_ended, spans = self._is_ended, self.spans
        return not all(span.is_finished for span in spans) or not (spans or is_ended)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Spans whose reads have begun, those that come first at the front."""
        return self._held.spans

    def first(self) -> Span | None:
        """The span to use now; None while there is none."""
        self.advance()
        spans = self.spans
        return spans[0] if spans else None

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far."""
        return self._held.read_bytes()

    def decode_s(self) -> float:
        """Processor's time of decoding so far; 0 without a codec."""
        return self._held.decode_s()

    def load(self, stretches: Sequence[range]) -> None:
        """Reads these stretches of pieces, one after the other, each span after span."""
        policy = self._opener.policy_of(stretches)
        with self._held.changed:
            self._policy = policy
            self._tell()

    def reach(self, chunk: int) -> None:
        """Pieces before this one are not needed any more; those in flight are overtaken."""
        self._reached_chunks = chunk
        for span in self.spans:
            _reach(span, chunk)

    def give_back(self, span: Span) -> None:
        """The user has taken what it wants of a span; a reader with a thread never waits."""
        with self._held.changed:
            self._held.give_back(span)
            self._tell()
        if self._thread is None:
            self._held.release_given_back()

    def wait_news(self, timeout_s: float) -> None:
        """Blocks until something has happened since the last call: a read begun, an end, ...

        Without a thread, until the next read may start.
        """
        if self._thread is None:
            if self._held.newest is not None:
                self._held.newest.reads.wait_nearly_over(self._options.chunks_ahead(), timeout_s)
            return
        with self._held.changed:
            self._held.changed.wait_for(lambda: self._has_news, timeout_s)
            self._has_news = False

    def close(self) -> None:
        """Stops reading and releases everything: soon and by the thread, or now without one."""
        with self._held.changed:
            self._is_closed = True
            for span in self._held.spans:
                span.reads.cancel()
            self._tell()
        if self._thread is None:
            try:
                self._end()
            finally:
                self._leave()

    def join(self) -> None:
        """Waits until the thread has released everything: every call has a deadline."""
        if self._thread is not None:
            self._thread.join()

    def _learn(self) -> None:
        """Learns which pieces are stored, and keeps them. The user's call without a thread."""
        stored = self._find()
        with self._held.changed:
            self._stored = stored
            self._tell()
        if self._options.reads_prefix:
            self.load([range(stored.prefix_chunks)])

    def advance(self) -> None:
        """Starts the reads that are due; does nothing where a thread does."""
        if self._thread is None and not self._is_ended:
            if self._stored is None:
                self._learn()
            if self._policy is not None:
                step, _ = self._work()
                self._is_ended = step is Step.END
                self._lacks_room = step is Step.AWAIT_ROOM and not self._held.spans

    def _tell(self) -> None:
        """Wakes both sides; called with the lock held."""
        self._has_news = True
        self._held.changed.notify_all()

    def _run(self) -> None:
        try:
            self._learn()
            with self._held.changed:
                self._held.changed.wait_for(lambda: self._is_closed or self._policy is not None)
            is_wanted = self._enter()
            while is_wanted:
                is_wanted = self._await(*self._work())
        except Exception:
            LOGGER.exception("reading a history failed; what is missing is computed")
            if self._held.newest is not None:
                self._held.newest.reads.give_up()
        finally:
            try:
                self._end()
            finally:
                self._leave()

    def _enter(self) -> bool:
        """Waits for a share of the arena; False where nothing is to be read, or no more."""
        policy = self._policy
        if policy is None or not policy.chunk_count:
            return False
        if self._share is None:
            return True
        byte_count = self._opener.held_bytes(policy)
        return self._share.enter(self, byte_count, is_wanted=self._may_wait)

    def _leave(self) -> None:
        if self._share is not None:
            self._share.leave(self)
        if self._stored is not None and self._stored.lease is not None:
            self._stored.lease.release()

    def _work(self) -> tuple[Step, int]:
        """Does what may be done now; what there is to wait for, and how many spans are in use."""
        while True:
            self._held.release_given_back()
            policy = self._policy
            assert policy is not None
            policy.reach(self._reached_chunks)
            with self._held.changed:
                if self._is_closed:
                    return Step.END, 0
                in_flight, newest = len(self._held.spans), self._held.newest
            step = policy.step(
                in_flight=in_flight,
                newest_lacks_reads=newest is not None and not newest.reads.are_all_started,
                is_nearly_over=newest is None
                or newest.reads.is_nearly_over(self._options.chunks_ahead()),
            )
            if step not in (Step.OPEN, Step.START):
                return step, in_flight
            timeout_ms = int(self._remaining_s() * 1000)
            if timeout_ms <= 0:
                if step is Step.START and newest is not None:
                    newest.reads.give_up()
                return Step.END, in_flight
            if step is Step.START:
                assert newest is not None
                self._start_read(newest, timeout_ms)
            elif (span := self._open(policy)) is not None:
                self._start_read(span, timeout_ms, is_new=True)
            else:
                return Step.AWAIT_ROOM, in_flight

    def _open(self, policy: ReadPolicy) -> Span | None:
        assert self._stored is not None
        # A thread connects nothing: the user of a store that is gone would wait for it.
        return self._opener.open(policy, self._stored.pieces, connects=self._thread is None)

    def _start_read(self, span: Span, timeout_ms: int, *, is_new: bool = False) -> None:
        """Starts the next read of a span, which loses what a failed one would bring."""
        try:
            span.reads.start(timeout_ms)
        except Exception:
            self._held.give_up(span)
            raise
        with self._held.changed:
            if is_new:
                self._held.add(span)
            _reach(span, self._reached_chunks)
            self._tell()

    def _await(self, step: Step, in_flight: int) -> bool:
        """Blocks until there may be more to do; False when there is nothing, or no room in time."""
        if step is Step.END:
            return False
        if step is Step.AWAIT_READ:
            newest = self._held.newest
            if newest is not None and not self._options.is_polling:
                newest.reads.wait_nearly_over(self._options.chunks_ahead(), READ_INTERVAL_S)
                return True
            with self._held.changed:
                self._held.changed.wait_for(lambda: self._is_closed, READ_INTERVAL_S)
            return True
        with self._held.changed:
            if in_flight:
                self._held.changed.wait_for(
                    lambda: (
                        self._is_closed
                        or self._held.given_back
                        or len(self._held.spans) < in_flight
                    )
                )
                return True
            self._held.changed.wait_for(lambda: self._is_closed, ROOM_INTERVAL_S)
        return self._opener.may_find_room and self._may_wait()

    def _may_wait(self) -> bool:
        return not self._is_closed and time.monotonic() < self._room_until_s

    def _end(self) -> None:
        """Releases everything, each span when the user needs it no more."""
        with self._held.changed:
            self._is_ended = True
            self._tell()
        is_held = True
        while is_held:
            self._held.release_given_back()
            with self._held.changed:
                self._held.changed.wait_for(
                    lambda: self._is_closed or self._held.given_back or not self._held.spans
                )
                if self._is_closed:
                    self._held.give_all_back()
                is_held = bool(self._held.given_back or self._held.spans)


def _reach(span: Span, chunk: int) -> None:
    span.reads.reach(min(max(0, chunk - span.first_chunk), span.chunk_count))
