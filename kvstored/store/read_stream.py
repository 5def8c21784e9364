"""One read in progress: what is still to be issued, what is settled, when it is over.

A stream can be overtaken: before each issue it looks at the board and gives up what
the engine's pointer has reached, what was cancelled, and what is late.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from kvstored.format.checksum import checksum
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.store.pieces import Pieces, pieces_checksum, scatter
from kvstored.store.placement import Placement
from kvstored.store.plan import LayerRun
from kvstored.store.window import Window
from kvstored_contract.board import Board, BoardWord, SliceState, Watch
from kvstored_contract.limits import ALIGNMENT_BYTES

NOTIFY_INTERVAL_S = 0.001
"""Progress wakes a client that watches it at most so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A chunk to be read from its extent; ``device_id`` is that of its device."""

    chunk: ChunkId
    record: ChunkRecord
    device_id: bytes
    geometry: ChunkGeometry


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedChunk:
    """A chunk to be copied from a frame of the DRAM tier: the bytes of its extent."""

    chunk: ChunkId
    frame: memoryview
    geometry: ChunkGeometry


ChunkSource = StoredChunk | FramedChunk


class Landing(NamedTuple):
    """A run that was read from a device and is not verified yet.

    ``pieces`` tell for each of its layers where the slice goes in the arena. ``payload``
    holds the slices as they lie on the device, in memory that no client can write; None
    when they went straight into the arena. ``release`` gives that memory back and is
    called once, when the run needs it no more.
    """

    run: LayerRun
    pieces: tuple[Pieces, ...]
    payload: memoryview | None
    release: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """Where bytes and progress go. ``notify`` wakes the client and must not block.

    An arena that ``takes_transfers`` lies on huge pages: devices transfer into it
    directly. Pages of 4 KiB make a transfer slower than a copy through private memory
    on huge pages, because the kernel hands them to the device one by one.
    """

    arena: memoryview
    takes_transfers: bool
    placement: Placement
    board: Board
    notify: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Layer range and limits of one read. ``deadline`` is on the monotonic clock."""

    first_layer: int
    layer_count: int
    window_bytes: int
    deadline: float


class ReadStream:
    """State of one read. Methods may be called from any thread.

    ``copy_bytes`` are those of the chunks that are copied from DRAM, all of their layers.
    ``on_damage`` is called once for each chunk whose bytes do not match the index;
    ``on_finish`` once, after the last access to the arena.
    """

    def __init__(
        self,
        *,
        sources: tuple[ChunkSource | None, ...],
        plan: dict[int, list[LayerRun]],
        target: ReadTarget,
        options: StreamOptions,
        on_damage: Callable[[StoredChunk], None],
        on_finish: Callable[["ReadStream"], None],
    ) -> None:
        self.sources = sources
        self.target = target
        self.device_bytes = 0
        self.dram_bytes = 0
        self.copy_bytes = sum(
            source.geometry.extent_bytes for source in sources if isinstance(source, FramedChunk)
        )
        self._options = options
        self._on_damage = on_damage
        self._on_finish = on_finish
        self._queues = {lane: deque(runs) for lane, runs in plan.items()}
        self._notified_at = 0.0
        self._remaining = sum(map(len, plan.values()))
        self._window = Window(options.window_bytes, plan)
        self._is_placement_aligned = target.placement.is_aligned(
            chunk_count=len(sources), layer_count=options.layer_count
        )
        self._pieces_per_slice = target.placement.pieces_per_slice(max(len(sources), 1))
        self._cancelled = False
        self._pointer = 0
        self._headers: dict[int, ExtentHeader] = {}
        self._unverified: dict[int, list[Landing]] = {}
        self._damaged: set[int] = set()
        self._lock = threading.RLock()
        self._finished = threading.Event()

    @property
    def lanes(self) -> tuple[int, ...]:
        """The lanes on which this read has runs."""
        return tuple(self._queues)

    @property
    def dram_chunks(self) -> int:
        """Chunks that are copied from DRAM."""
        return sum(isinstance(source, FramedChunk) for source in self.sources)

    @property
    def nvme_chunks(self) -> int:
        """Chunks that are read from devices."""
        return sum(isinstance(source, StoredChunk) for source in self.sources)

    def cancel(self) -> None:
        """Gives up everything that is not in flight, at the next look of each lane."""
        self._cancelled = True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the read is over; then nothing touches the arena any more."""
        return self._finished.wait(timeout_s)

    def begin(self) -> None:
        """Settles the chunks that are not stored, and the whole read if there are no runs."""
        for chunk, source in enumerate(self.sources):
            if source is None:
                self.target.board.states[chunk, :] = SliceState.MISSING
        self._retire(0)

    def take(self, lane: int) -> LayerRun | None:
        """The next run to issue on ``lane``; None while there is none or the window is full.

        The engine's pointer is looked at here, immediately before the issue.
        """
        with self._lock:
            queue = self._queues[lane]
            while queue:
                verdict = self._verdict(queue[0])
                if verdict is not None:
                    self.settle(queue.popleft(), verdict)
                    continue
                lane_count = sum(map(bool, self._queues.values()))
                if self._window.take(lane, queue[0].byte_count, lane_count=lane_count):
                    return queue.popleft()
                return None
            return None

    def has_runs(self, lane: int) -> bool:
        """Whether ``lane`` has runs that were not issued."""
        return bool(self._queues[lane])

    def takes_transfers(self, run: LayerRun) -> bool:
        """Whether a device may transfer a run straight into the arena.

        Only whole pages are transferred, so every piece of its slices must be made of them.
        """
        if not (self.target.takes_transfers and self._is_placement_aligned):
            return False
        source = self.sources[run.chunk]
        assert source is not None
        unit_bytes = ALIGNMENT_BYTES * self._pieces_per_slice
        sizes = set(source.geometry.slice_bytes[run.first_layer : run.end_layer])
        return not any(size % unit_bytes for size in sizes)

    def run_pieces(self, run: LayerRun) -> tuple[Pieces, ...]:
        """Where the slices of a run go in the arena, one entry for each layer."""
        source = self.sources[run.chunk]
        assert source is not None
        return self.target.placement.pieces(
            chunk=run.chunk,
            first_layer=run.first_layer - self._options.first_layer,
            slice_bytes=source.geometry.slice_bytes[run.first_layer : run.end_layer],
            chunk_count=len(self.sources),
        )

    def landed(self, landing: Landing, header_page: bytes) -> None:
        """Takes over a run that was read: verifies it, then brings it into the arena.

        ``header_page`` is empty for runs without header; those that land before the
        header of their chunk wait for it. The header's run is always issued first, so
        that it never waits for the memory that they hold.
        """
        run = landing.run
        source = self.sources[run.chunk]
        assert isinstance(source, StoredChunk)
        with self._lock:
            self.device_bytes += run.byte_count
            self.target.board.words[BoardWord.DEVICE_BYTES] = self.device_bytes
            if run.with_header:
                self._accept_header(run.chunk, source, header_page)
            elif run.chunk not in self._headers and run.chunk not in self._damaged:
                self._unverified.setdefault(run.chunk, []).append(landing)
                return
        self._conclude(landing, self._verify(landing, source))

    def failed(self, landing: Landing) -> None:
        """Takes over a run that could not be read."""
        self._conclude(landing, SliceState.MISSING)

    def copied(self, run: LayerRun) -> None:
        """Takes over a run that was copied from DRAM, where no header is needed."""
        with self._lock:
            self.dram_bytes += run.byte_count
            self.target.board.words[BoardWord.DRAM_BYTES] = self.dram_bytes
        self.settle(run, SliceState.RESIDENT)

    def release_window(self, lane: int, run: LayerRun) -> bool:
        """Gives a run's bytes back to the window; called once when its transfer is over.

        True when a lane has found the window full, so that any lane may go on now.
        """
        with self._lock:
            return self._window.release(lane, run.byte_count)

    def settle(self, run: LayerRun, state: SliceState) -> None:
        """Publishes the final state of a run's slices."""
        if run.layer_count:
            first = run.first_layer - self._options.first_layer
            layers, board = slice(first, first + run.layer_count), self.target.board
            if board.lengths is not None and state is SliceState.RESIDENT:
                source = self.sources[run.chunk]
                assert source is not None
                lengths = source.geometry.slice_bytes[run.first_layer : run.end_layer]
                board.lengths[run.chunk, layers] = lengths
            board.states[run.chunk, layers] = state
        self._retire(1)

    def _conclude(self, landing: Landing, state: SliceState) -> None:
        """Settles a landed run, and behind a header the runs that waited for it."""
        landing.release()
        waiting: list[Landing] = []
        if landing.run.with_header:
            chunk = landing.run.chunk
            with self._lock:
                if chunk not in self._headers:
                    self._damaged.add(chunk)
                waiting = self._unverified.pop(chunk, [])
        self.settle(landing.run, state)
        for behind in waiting:
            source = self.sources[behind.run.chunk]
            assert isinstance(source, StoredChunk)
            self._conclude(behind, self._verify(behind, source))

    def _verdict(self, run: LayerRun) -> SliceState | None:
        """Why a run is not read; called under the lock.

        The engine's words only ever move forward here: were a chunk's header given up and
        its other runs read, they would wait for it for ever, and hold their memory.
        """
        words = self.target.board.words
        self._cancelled = self._cancelled or bool(words[BoardWord.CANCEL])
        self._pointer = max(self._pointer, int(words[BoardWord.POINTER]))
        if self._cancelled or run.chunk < self._pointer:
            return SliceState.SKIPPED
        if run.chunk in self._damaged:
            return SliceState.MISSING
        if time.monotonic() > self._options.deadline:
            return SliceState.LATE
        return None

    def _accept_header(self, chunk: int, source: StoredChunk, page: bytes) -> None:
        """Keeps the header if it is the one that the index vouches for."""
        try:
            header = ExtentHeader.decode(page)
        except FormatError:
            header = None
        if header is not None and is_header_of(header, page, source):
            self._headers[chunk] = header
        else:
            self._mark_damaged(chunk, source)

    def _verify(self, landing: Landing, source: StoredChunk) -> SliceState:
        """Compares every slice with the header; those that are not in the arena go there."""
        run, payload, arena = landing.run, landing.payload, self.target.arena
        header = self._headers.get(run.chunk)
        if header is None:
            return SliceState.MISSING
        sums = header.slices[run.first_layer : run.end_layer]
        if payload is None:
            is_sound = all(
                not expected.byte_count or pieces_checksum(arena, pieces) == expected.checksum
                for pieces, expected in zip(landing.pieces, sums, strict=True)
            )
        else:
            starts = source.geometry.starts_in_run(run.first_layer, run.layer_count)
            is_sound = all(
                not expected.byte_count
                or checksum(payload[start : start + expected.byte_count]) == expected.checksum
                for start, expected in zip(starts, sums, strict=True)
            )
        if not is_sound:
            self._mark_damaged(run.chunk, source)
            return SliceState.MISSING
        if payload is not None:
            scatter(payload, arena, zip(starts, landing.pieces, strict=True))
        return SliceState.RESIDENT

    def _mark_damaged(self, chunk: int, source: StoredChunk) -> None:
        with self._lock:
            is_news = chunk not in self._damaged
            self._damaged.add(chunk)
        if is_news:
            self._on_damage(source)

    def _retire(self, run_count: int) -> None:
        """Counts settled runs; the last one finishes the read.

        The client is woken for what it watches only, and for progress at most once in
        NOTIFY_INTERVAL_S: a wake-up costs more than the bookkeeping of a run.
        """
        with self._lock:
            self._remaining -= run_count
            is_over = self._remaining == 0 and not self._finished.is_set()
            if is_over:
                self.target.board.words[BoardWord.FINISHED] = 1
                self._finished.set()
            # Looked at after the board was written: whoever watches looks at the board
            # after it has said so, and so one of both sees the other.
            watch = self.target.board.words.item(BoardWord.WATCHED)
            wakes = watch >= Watch.END if is_over else self._is_notice_due(watch)
        if wakes:
            self.target.notify()
        if is_over:
            self._on_finish(self)

    def _is_notice_due(self, watch: int) -> bool:
        if watch < Watch.PROGRESS:
            return False
        now = time.monotonic()
        if now - self._notified_at <= NOTIFY_INTERVAL_S:
            return False
        self._notified_at = now
        return True


def is_header_of(header: ExtentHeader, page: bytes, source: StoredChunk) -> bool:
    """Whether a sound header is the very one that the index recorded for this chunk."""
    return (
        int.from_bytes(page[-8:], "little") == source.record.header_checksum
        and header.chunk == source.chunk
        and header.device_id == source.device_id
        and header.offset == source.record.extent.offset
        and header.slice_bytes == source.geometry.slice_bytes
    )
