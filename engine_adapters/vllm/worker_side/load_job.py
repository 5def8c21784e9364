"""One load of one worker while it runs."""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.chunk_memory import ChunkMemory
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder
from engine_adapters.vllm.worker_side.engine_turn import EngineTurn
from kvstored_client import Client, Order, Read, Region, StateLayout

READS_AHEAD = 2
"""Reads of one load that are on their way at once."""
CHUNKS_AHEAD = 2
ASK_AHEAD_S = 0.02
"""A read of an overtaken load is asked for when the one before lacks so many chunks, or will end
so soon: the daemon serves all reads evenly, and what lies further ahead may never be wanted."""
PROJECTED_CHUNKS_MAX = 8
"""Chunks that are projected at once: between two steps, so others wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlace:
    """Where loads come from and go to; one for each worker."""

    client: Client
    layout: StateLayout
    filler: BlockFiller
    turn: EngineTurn
    threads: Executor
    span_chunks: int
    timeout_s: float


@dataclass(slots=True, kw_only=True)
class OpenRead:
    """A read on its way into a region, which is the daemon's until the read has finished."""

    chunks: range
    memory: ChunkMemory
    asked: Future[Read]

    @property
    def read(self) -> Read | None:
        """The read, when the daemon has taken it; raises what asking for it raised.

        A read that was never asked for, because its threads have ended, raises CancelledError.
        """
        return self.asked.result() if self.asked.done() else None

    @property
    def begun(self) -> Read | None:
        """The read, if the daemon has taken it. Raises nothing."""
        if not self.asked.done() or self.asked.cancelled() or self.asked.exception() is not None:
            return None
        return self.asked.result()

    def try_release(self) -> bool:
        """Cancels the read; True when it has ended and the region is free again."""
        # What no thread has begun to ask for never uses the region.
        if not (self.asked.cancel() or self.asked.done()):
            return False
        if (read := self.begun) is not None:
            if not read.finished:
                read.cancel()
                return False
            read.close()
        self.memory.region.release()
        return True


class LoadJob:
    """Copies chunks into the engine's blocks as they arrive, in one direction.

    An overtaken load goes from its last chunk down until computing claims the next one (Cake,
    section 4); any other goes up. What was copied is always the run of chunks from where it
    began. ``step`` belongs to one thread; ``claim`` and ``cancel`` may be called from any, and
    when they return no block that they name is written any more.
    """

    def __init__(self, order: LoadOrder, place: LoadPlace) -> None:
        self.order = order
        chunks = order.span.chunks
        self._place = place
        self._turns = list(reversed(chunks)) if order.overtaken else list(chunks)
        self._next_turn = 0
        self._next_read = 0
        self._reads: deque[OpenRead] = deque()
        self._started_s = time.monotonic()
        self._first_copy_s = self._started_s
        self._lock = threading.Lock()
        self._claimed_chunks = 0
        self._is_cancelled = False
        self._loaded_blocks = 0
        self._device_bytes = 0
        self._dram_bytes = 0
        self.end: LoadEnd | None = None
        """What came of it, once nothing more is copied."""

    @property
    def first_loaded(self) -> int | None:
        """The first of the chunks that lie in their blocks, of an overtaken load."""
        return self._turns[self._next_turn - 1] if self._next_turn else None

    @property
    def missing_block_ids(self) -> list[int]:
        """Blocks that are not filled."""
        return list(self.order.span.ids_of(self._turns[self._next_turn :]))

    def claim(self, chunk_count: int) -> None:
        """Computing owns the blocks of the first ``chunk_count`` chunks of the request."""
        with self._lock:
            self._claimed_chunks = max(self._claimed_chunks, chunk_count)

    def cancel(self) -> None:
        """No block is written any more."""
        with self._lock:
            self._is_cancelled = True

    def step(self) -> bool:
        """Asks for what comes next and copies what has arrived; whether anything moved."""
        if self.end is not None:
            return False
        moved = self._copy_arrived()
        if self.end is not None:
            return True
        if self._next_turn == len(self._turns) or not self._is_wanted(self._turns[self._next_turn]):
            self._finish()
        elif time.monotonic() - self._started_s > self._place.timeout_s:
            self._finish(lost=True)
        elif not self._reads or (len(self._reads) < READS_AHEAD and self._is_nearly_over()):
            moved |= self._ask()
        return moved or self.end is not None

    def abandon(self) -> None:
        """Ends the load where it is: what is not in its blocks is lost."""
        if self.end is None:
            self._finish(lost=True)

    def release(self) -> bool:
        """Gives back what the ended load holds; False while the daemon may still write there."""
        self._reads = deque(reading for reading in self._reads if not reading.try_release())
        return not self._reads

    def _is_wanted(self, chunk: int) -> bool:
        return not self._is_cancelled and chunk >= self._claimed_chunks

    def _is_nearly_over(self) -> bool:
        """Whether the next read may share the devices with the one that runs."""
        if not self.order.overtaken:
            return True
        missing_chunks = self._next_read - self._next_turn
        if missing_chunks <= CHUNKS_AHEAD or self._next_turn < 2:
            return missing_chunks <= CHUNKS_AHEAD
        chunk_s = (time.monotonic() - self._first_copy_s) / (self._next_turn - 1)
        return missing_chunks * chunk_s <= ASK_AHEAD_S

    def _ask(self) -> bool:
        """Starts the next read; False when there is none to start, or no room for it."""
        turns = self._turns[self._next_read : self._next_read + self._place.span_chunks]
        if not turns or not self._is_wanted(turns[0]):
            return False
        layout, client = self._place.layout, self._place.client
        chunks = range(min(turns), max(turns) + 1)
        region: Region | None = client.allocate(
            ChunkMemory.byte_count(layout, len(chunks)), connects=False
        )
        if region is None:
            if client.epoch == 0:
                self._finish(lost=True)
            return False
        memory = ChunkMemory(region, layout, len(chunks))
        first = self.order.span.chunks.start
        keys = [
            rank_key(self.order.chain_keys[chunk - first], layout.layout_id) for chunk in chunks
        ]
        try:
            asked = self._place.threads.submit(
                client.read,
                layout,
                keys,
                memory.placement,
                order=Order.TAIL_FIRST if self.order.overtaken else Order.HEAD_FIRST,
                timeout_ms=max(1, int(self._place.timeout_s * 1000)),
            )
        except RuntimeError:
            # The threads have ended.
            region.release()
            self._finish(lost=True)
            return False
        self._reads.append(OpenRead(chunks=chunks, memory=memory, asked=asked))
        self._next_read += len(chunks)
        return True

    def _copy_arrived(self) -> bool:
        """Copies what lies in the arena, as far as the run of chunks goes on."""
        moved = False
        while self._reads and (read := self._reads[0].read) is not None:
            reading = self._reads[0]
            if self._claimed_chunks > reading.chunks.start:
                read.advance(min(self._claimed_chunks, reading.chunks.stop) - reading.chunks.start)
            report = read.report()
            while run := self._arrived_run(reading, report.resident):
                if not self._copy(reading, run):
                    return moved
                if not self._next_turn:
                    self._first_copy_s = time.monotonic()
                self._next_turn += len(run)
                moved = True
            if not report.finished:
                break
            if self._next_chunk in reading.chunks:
                self._finish(lost=self._is_wanted(self._next_chunk))
                break
            self._count_bytes(reading)
            reading.try_release()
            self._reads.popleft()
        return moved

    @property
    def _next_chunk(self) -> int:
        """The chunk whose turn it is; -1 behind the last."""
        return self._turns[self._next_turn] if self._next_turn < len(self._turns) else -1

    def _arrived_run(self, reading: OpenRead, resident: Sequence[bool]) -> list[int]:
        """The next chunks that lie in the arena, as many as are brought into blocks at once."""
        at_once = PROJECTED_CHUNKS_MAX if self._place.filler.needs_engine else 1
        run = []
        for chunk in self._turns[self._next_turn : self._next_turn + at_once]:
            if chunk not in reading.chunks or not resident[chunk - reading.chunks.start]:
                break
            run.append(chunk)
        return run

    def _copy(self, reading: OpenRead, chunks: Sequence[int]) -> bool:
        """Brings chunks into their blocks; False when they are not wanted any more."""
        copies = [self.order.span.copy_of(chunk) for chunk in chunks]

        def fill() -> bool:
            with self._lock:
                if not all(map(self._is_wanted, chunks)):
                    return False
                self._place.filler.fill(reading.memory, reading.chunks.start, copies)
            return True

        is_filled = self._place.turn.run(fill) if self._place.filler.needs_engine else fill()
        if is_filled:
            self._loaded_blocks += sum(len(copy.block_ids) for copy in copies)
        return is_filled

    def _count_bytes(self, reading: OpenRead) -> None:
        if (read := reading.begun) is not None:
            report = read.report()
            self._device_bytes += report.device_bytes
            self._dram_bytes += report.dram_bytes

    def _finish(self, *, lost: bool = False) -> None:
        for reading in self._reads:
            self._count_bytes(reading)
        self.end = LoadEnd(
            load_id=self.order.load_id,
            loaded_blocks=self._loaded_blocks,
            lost_chunks=(self._turns[self._next_turn],) if lost else (),
            device_bytes=self._device_bytes,
            dram_bytes=self._dram_bytes,
            duration_s=time.monotonic() - self._started_s,
        )
