"""One load of one worker while it runs."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from engine_adapters.device_copies.landing import Landing
from engine_adapters.reading.byte_format import ByteFormat
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.section import whole_section
from engine_adapters.reading.section_reads import AT_ONCE, CHUNKS_AHEAD
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import StoredPieces, known
from engine_adapters.restore import LEAST_WAIT_S, LoadClock, StepCosts, TokenRange
from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.linked_span import LinkedSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder
from engine_adapters.vllm.worker_side.between_forwards import BetweenForwards
from engine_adapters.vllm.worker_side.load_bound import LoadBound
from engine_adapters.vllm.worker_side.meetings import Join, Meetings, Offer
from kvstored_client import Client, Order, SliceState, StateLayout

ASK_AHEAD_S = 0.02
"""A read of an overtaken load is asked for when the one before will end so soon, if that lacks
more chunks than a reader waits for: what lies further ahead may never be wanted."""
CHUNK_S_MIN = 1e-6
"""Chunks that were copied at the same time still took some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlace:
    """Where loads come from and go to, and how long they may take; one for each worker.

    A load takes ``timeout_s`` at most. One that is not overtaken ends as soon as computing, by
    ``costs``, would be sooner, though not before ``least_wait_s``, in the time of ``clock``. With
    ``meetings`` this rank has a part of each layer input, and brings chunks when all ranks do.
    """

    client: Client
    layout: StateLayout
    filler: BlockFiller
    between: BetweenForwards
    span_chunks: int
    timeout_s: float
    costs: StepCosts
    clock: LoadClock
    least_wait_s: float = LEAST_WAIT_S
    meetings: Meetings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Chunks of a span on their way into their blocks; the span's bytes are needed until then."""

    span: Span
    chunks: Sequence[int]
    landing: Landing


class LoadJob:
    """Copies chunks into the engine's blocks as they arrive, in one direction.

    An overtaken load goes from its last chunk down until computing claims the next one (Cake,
    section 4); any other goes up, and so does a linked one. What was copied is always the stretch
    of chunks from where it began. Made, claimed and cancelled on the engine's thread: what that
    launches after ``claim`` or ``cancel`` finds no block written any more that they name. ``step``
    belongs to one thread, and waits for no read and, until it gives up, for no copy.
    """

    def __init__(self, order: LoadOrder, place: LoadPlace) -> None:
        self.order = order
        chunks = order.span.chunks
        self._bound = None if order.is_from_end else bound_of(order, place)
        self._place = place
        self._ordered_chunks = list(reversed(chunks)) if order.is_from_end else list(chunks)
        self._launched_chunks = 0
        self._taken_chunks = 0
        self._flights: deque[Flight] = deque()
        self._after = place.filler.mark()
        self._reader = self._reader_of(order)
        self._is_begun = False
        self._started_s = time.monotonic()
        self._first_copy_s = self._started_s
        self._lock = threading.Lock()
        self._claimed_chunks = 0
        self.end: LoadEnd | None = None
        """What came of it, once nothing more is copied."""

    @property
    def first_loaded(self) -> int | None:
        """The chunk that came last: of an overtaken load the first, of a linked one the last."""
        return self._ordered_chunks[self._taken_chunks - 1] if self._taken_chunks else None

    @property
    def missing_block_ids(self) -> list[int]:
        """Blocks that are not filled."""
        return list(self.order.span.ids_of(self._ordered_chunks[self._taken_chunks :]))

    def claim(self, chunk_count: int) -> None:
        """Computing owns the blocks of the first ``chunk_count`` chunks of the request."""
        with self._lock:
            self._claimed_chunks = max(self._claimed_chunks, chunk_count)
            flights = [each for each in self._flights if min(each.chunks) < chunk_count]
        for flight in flights:
            flight.landing.hold_engine()

    def cancel(self) -> None:
        """No block is written any more."""
        with self._lock:
            self._claimed_chunks = max(self._claimed_chunks, self.order.span.chunks.stop)
            flights = list(self._flights)
        for flight in flights:
            flight.landing.hold_engine()

    def step(self) -> bool:
        """Copies what has arrived; whether anything moved."""
        if self.end is not None:
            return False
        if self._bound is not None:
            self._bound.look()
        if not self._is_begun:
            # On the loader's thread, whose cores the reader's inherits.
            self._is_begun = True
            self._reader.start(room_timeout_s=self._place.timeout_s)
        # In this order: what the reader has handed over before it ended is among the spans.
        is_reading = not self._reader.is_ended
        moved = self._land()
        moved = self._copy_arrived() or moved
        if self.end is not None:
            return True
        is_late = self._is_late(moved=moved)
        is_all = self._launched_chunks == len(self._ordered_chunks)
        if is_all or not self._is_wanted(self._next_chunk):
            if not self._flights:
                self._finish()
        elif is_late or not (is_reading or self._reader.spans):
            self._finish(lost=True)
        return moved or self.end is not None

    def chunks_ahead(self) -> int:
        """With so many missing chunks a read may share the devices with the next one."""
        if not self.order.is_from_end:
            return AT_ONCE
        chunks = CHUNKS_AHEAD
        if self._taken_chunks > 1:
            chunk_s = (time.monotonic() - self._first_copy_s) / (self._taken_chunks - 1)
            chunks = max(chunks, int(ASK_AHEAD_S / max(CHUNK_S_MIN, chunk_s)))
        return chunks if chunks < self._place.span_chunks else AT_ONCE

    def abandon(self) -> None:
        """Ends the load where it is: what is not in its blocks is lost."""
        if self.end is None:
            # What is on its way may fail as well: then nothing of it counts, and that is all.
            with suppress(Exception):
                self._land(waits=True)
            self._finish(lost=True)

    @property
    def is_released(self) -> bool:
        """Whether the ended load holds nothing any more: the daemon may write there until then."""
        return not self._reader.is_running

    def _reader_of(self, order: LoadOrder) -> SpanReader:
        place, layout = self._place, self._place.layout

        def find() -> StoredPieces:
            keys = [rank_key(key, layout.layout_id) for key in order.chain_keys]
            return known(pieces_of(keys, chunk_tokens=layout.chunk_tokens))()

        return SpanReader(
            place.client,
            ByteFormat(layout),
            find,
            ReadOptions(
                order=Order.TAIL_FIRST if order.is_from_end else Order.HEAD_FIRST,
                span_chunks=place.span_chunks,
                from_end=order.is_from_end,
                sections=(whole_section(layout),),
                chunks_ahead=self.chunks_ahead,
                is_polling=True,
            ),
            remaining_s=lambda: place.timeout_s,
        )

    def _is_late(self, *, moved: bool) -> bool:
        """Whether what has not come counts as lost."""
        load_id, meetings = self.order.load_id, self._place.meetings
        if meetings is not None and meetings.is_parted(load_id):
            return True
        # The engine may take its time for a step: it keeps the load, and nobody else does.
        is_ready = meetings is not None and meetings.waits_for_engine(load_id)
        if not is_ready and time.monotonic() - self._started_s > self._place.timeout_s:
            return True
        return not (self._bound is None or moved or self._bound.is_waited_for(self._reader))

    def _is_wanted(self, chunk: int) -> bool:
        return chunk >= self._claimed_chunks

    def _stop_token(self, chunk: int) -> int:
        """The position after the last wanted token of a chunk."""
        span, chunk_tokens = self.order.span, self._place.layout.chunk_tokens
        tokens = tokens_of(span, chunk_tokens)
        before = tokens.first if isinstance(span, LinkedSpan) else 0
        return min(before + (chunk + 1) * chunk_tokens, tokens.stop)

    def _first_chunk(self, span: Span) -> int:
        """The number of a span's first chunk in the request."""
        return self.order.span.chunks.start + span.first_chunk

    def _copy_arrived(self) -> bool:
        """Copies what lies in the arena, as far as the stretch of chunks goes on."""
        moved = False
        if self._claimed_chunks > self.order.span.chunks.start:
            self._reader.reach(self._claimed_chunks - self.order.span.chunks.start)
        for span in self._reader.spans:
            while (state := self._state(span, self._next_chunk)) is SliceState.RESIDENT:
                stretch = self._arrived_stretch(span)
                if not self._copy(span, stretch):
                    return moved
                self._land()
                moved = True
            if state is SliceState.PENDING:
                break
            if state is not None:
                self._finish(lost=self._is_wanted(self._next_chunk))
                break
            if all(flight.span is not span for flight in self._flights):
                self._reader.give_back(span)
        return moved

    def _land(self, *, waits: bool = False) -> bool:
        """Takes the chunks that lie in their blocks, as far as their stretch goes on."""
        moved = False
        while self._flights and (waits or self._flights[0].landing.is_over):
            flight = self._flights[0]
            try:
                flight.landing.wait()
            except Exception:
                self._lose_flights()
                raise
            with self._lock:
                self._flights.popleft()
            if not self._taken_chunks:
                self._first_copy_s = time.monotonic()
            self._taken_chunks += len(flight.chunks)
            if self._bound is not None:
                self._bound.loaded(self._stop_token(flight.chunks[-1]))
            moved = True
        return moved

    def _lose_flights(self) -> None:
        """A copy has failed: those after it count for nothing, but end first."""
        for flight in self._flights:
            with suppress(Exception):
                flight.landing.wait()
        with self._lock:
            self._flights.clear()

    def _state(self, span: Span, chunk: int) -> SliceState | None:
        """What became of a chunk; None where it does not belong to the span."""
        place = chunk - self._first_chunk(span)
        return span.state(place) if 0 <= place < span.chunk_count else None

    @property
    def _next_chunk(self) -> int:
        """The chunk that is taken next; -1 after the last."""
        return (
            self._ordered_chunks[self._launched_chunks]
            if self._launched_chunks < len(self._ordered_chunks)
            else -1
        )

    def _arrived_stretch(self, span: Span) -> list[int]:
        """The next chunks that lie in the arena, as many as are brought into blocks at once."""
        first, at_once = self._launched_chunks, self._place.filler.chunks_at_once
        chunks = self._ordered_chunks[first : first + at_once]

        def may_come(chunk: int) -> bool:
            return self._is_wanted(chunk) and self._state(span, chunk) is SliceState.RESIDENT

        # The first one in any case: it tells whether the load is over.
        return [*chunks[:1], *takewhile(may_come, chunks[1:])]

    def _copy(self, span: Span, chunks: Sequence[int]) -> bool:
        """Begins to bring chunks into their blocks; False when they are not wanted, or not yet."""
        copies = [self.order.span.copy_of(chunk) for chunk in chunks]
        filler = self._place.filler

        def fill(count: int, join: Join | None = None) -> Landing:
            return filler.fill(
                lambda layer: span.states(layer, span.chunk_count),
                self._first_chunk(span),
                copies[:count],
                after=self._after,
                join=join,
            )

        def take(count: int, landing: Landing) -> None:
            self._flights.append(Flight(span=span, chunks=chunks[:count], landing=landing))
            self._launched_chunks += count

        def bring() -> bool:
            with self._lock:
                if not all(map(self._is_wanted, chunks)):
                    return False
                take(len(chunks), fill(len(chunks)))
            return True

        if self._place.meetings is not None:
            offer = Offer(
                wanted=lambda: sum(1 for _ in takewhile(self._is_wanted, chunks)),
                rows=lambda count: filler.row_count(copies[:count]),
                fill=fill,
                take=take,
            )
            self._place.meetings.offer(self.order.load_id, offer)
            if self._bound is not None:
                self._bound.waits_for_others = True
            return False
        return self._in_its_place(bring) if filler.needs_engine else bring()

    def _in_its_place(self, bring: Callable[[], bool]) -> bool:
        """Has the engine's thread bring chunks; what that is waited for is no time of the load."""
        asked_s, brought_s = time.monotonic(), 0.0

        def bring_timed() -> bool:
            nonlocal brought_s
            begun_s = time.monotonic()
            is_brought = bring()
            brought_s = time.monotonic() - begun_s
            return is_brought

        is_brought = self._place.between.run(bring_timed)
        self._place.clock.exclude(time.monotonic() - asked_s - brought_s)
        return is_brought

    def _finish(self, *, lost: bool = False) -> None:
        self._land(waits=True)
        is_partial = self._taken_chunks < len(self._ordered_chunks)
        # An end in any case, also where the reader cannot say what it read.
        self.end = LoadEnd(
            load_id=self.order.load_id,
            loaded_blocks=sum(
                self.order.span.copy_of(chunk).block_count
                for chunk in self._ordered_chunks[: self._taken_chunks]
            ),
            lost_chunks=(self._ordered_chunks[self._taken_chunks],) if lost and is_partial else (),
            duration_s=time.monotonic() - self._started_s,
        )
        self._reader.close()
        device_bytes, dram_bytes = self._reader.read_bytes()
        self.end = replace(self.end, device_bytes=device_bytes, dram_bytes=dram_bytes)


def tokens_of(span: BlockSpan | LinkedSpan, chunk_tokens: int) -> TokenRange:
    """The positions that lie in the blocks of a load.

    Chunks of entries count as if they stood side by side: as many tokens.
    """
    if isinstance(span, LinkedSpan):
        first = span.first_tokens[0]
        return TokenRange(first, first + len(span.chunks) * chunk_tokens)
    block_tokens = chunk_tokens // span.chunk_blocks
    return TokenRange(span.first_block * block_tokens, span.stop_block * block_tokens)


def bound_of(order: LoadOrder, place: LoadPlace) -> LoadBound:
    """What limits a load that a request waits for."""
    layout = place.layout
    return LoadBound(
        tokens_of(order.span, layout.chunk_tokens),
        byte_count=len(order.span.chunks) * layout.chunk_bytes(),
        costs=place.costs,
        clock=place.clock,
        least_wait_s=place.least_wait_s,
    )
