"""Brings chunks that are read again and again from the devices into DRAM.

A chunk is promoted behind its second read, not on its first: cold reads go straight
into the arena without a copy. A read of some of its layers counts as that share of a read.
It takes the place of another chunk only if it was read more often, so that histories that
together exceed the tier do not chase each other through it (TinyLFU's rule of admission).
"""

import logging
import queue
import threading
import time

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import IoEngine
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.read_stream import ChunkSource, StoredChunk
from kvstored.tiers.dram import DramTier, FrameState
from kvstored.tiers.extent_load import is_intact, load_extent
from kvstored.tiers.policy.use_counts import UseCounts
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)

COUNTED_CHUNKS_MAX = 65_536
"""Chunks whose reads are counted."""

READS_MIN = 2
"""Reads of a chunk before it is promoted."""
SHARES_ERROR = 0.01
"""What shares of a read may lack of a whole one when they are added up."""

WAITING_CHUNKS_MAX = 256
"""Promotions that may wait; more are not worth the reads."""


class Promoter:
    """One thread that loads chunks into DRAM frames. Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, counters: Counters
    ) -> None:
        self._store = store
        self._dram = dram
        self._engine = engine
        self._counters = counters
        self._reads: UseCounts[ChunkId] = UseCounts(COUNTED_CHUNKS_MAX)
        self._lock = threading.Lock()
        self._queue: queue.Queue[StoredChunk | None] = queue.Queue(WAITING_CHUNKS_MAX)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kvstored-promote", daemon=True)
        self._thread.start()

    def was_read(self, source: ChunkSource, share: float) -> None:
        """Hears of a read of that share of a chunk's layers, from any tier; never blocks."""
        with self._lock:
            reads = self._reads.add(source.chunk, share)
        if isinstance(source, StoredChunk) and reads >= READS_MIN - SHARES_ERROR:
            try:
                self._queue.put_nowait(source)
            except queue.Full:
                self._counters.add("promotions_dropped")

    def close(self) -> None:
        """Ends the thread after the promotion in progress."""
        self._is_closing = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (source := self._queue.get()) is not None:
            if not self._is_closing:
                try:
                    self._promote(source)
                except Exception:
                    LOGGER.exception("a chunk could not be promoted")

    def _promote(self, source: StoredChunk) -> None:
        self._store.pin([source.chunk])
        try:
            # The chunk may have been evicted between the read and this moment.
            if self._store.find([source.chunk]) == [source.record]:
                self._load(source)
        finally:
            self._store.unpin([source.chunk])

    def _load(self, source: StoredChunk) -> None:
        claim = self._dram.claim(
            source.chunk,
            layout_id=source.record.layout_id,
            geometry=source.geometry,
            class_bytes=source.record.extent.byte_count,
            deadline=time.monotonic(),
            may_evict=lambda victim: self._is_read_more_often(source.chunk, victim),
        )
        if claim is None or not claim.is_new:
            return
        frame = claim.frame
        if self._store.find([source.chunk]) != [source.record]:
            # Deleted since it was looked up.
            self._dram.abandon(frame, Reason.NOT_STORED)
            return
        error = load_extent(self._engine, source, frame.view)
        if error is not None:
            self._dram.abandon(frame, Reason.DEVICE_FAILED)
        elif not is_intact(source, frame.view):
            self._dram.abandon(frame, Reason.CHECKSUM)
            self._store.quarantine(source.chunk, source.record)
        else:
            self._dram.publish(frame, FrameState.CLEAN)
            frame.durable.set_result(Reason.UNSPECIFIED)
            self._counters.add("promoted_chunks")

    def _is_read_more_often(self, chunk: ChunkId, victim: ChunkId) -> bool:
        with self._lock:
            return self._reads.count(chunk) > self._reads.count(victim)
