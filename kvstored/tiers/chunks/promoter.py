"""Brings chunks that are read again and again from the devices into DRAM.

A chunk is promoted after its second read, not on its first: cold reads go straight
into the arena without a copy. A read of some of its layers counts as that share of a read.
It takes the place of another chunk only if it was read more often, so that histories that
together exceed the tier do not chase each other through it (TinyLFU's rule of admission).
"""

import threading
import time

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import Background, IoEngine
from kvstored.store.read.chunk_source import ChunkSource, StoredChunk
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.chunk_thread import ChunkThread
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.extent_load import is_intact, load_extent
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored.tiers.policy.use_counts import UseCounts
from kvstored_contract.reasons import Reason

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
        self._work = ChunkThread(
            self._load, store=store, name="kvstored-promote", waiting_max=WAITING_CHUNKS_MAX
        )

    def was_read(self, source: ChunkSource, share: float) -> None:
        """Hears of a read of that share of a chunk's layers, from any tier; never blocks."""
        with self._lock:
            reads = self._reads.add(source.chunk, share)
        if not isinstance(source, StoredChunk) or reads < READS_MIN - SHARES_ERROR:
            return
        if not self._work.offer(source):
            self._counters.add("promotions_dropped")

    def close(self) -> None:
        """Ends the thread after the promotion in progress."""
        self._work.close()

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
        try:
            reason = self._filled(frame, source)
        except BaseException:
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        if reason is Reason.UNSPECIFIED:
            self._dram.publish(frame, FrameState.CLEAN)
            frame.durable.set_result(Reason.UNSPECIFIED)
            self._counters.add("promoted_chunks")
            return
        self._dram.abandon(frame, reason)
        if reason is Reason.CHECKSUM:
            self._store.quarantine(source.chunk, source.record)

    def _filled(self, frame: Frame, source: StoredChunk) -> Reason:
        """Reads a chunk into a claimed frame, verified; or why it is not there."""
        if self._store.find([source.chunk]) != [source.record]:
            # Deleted since it was looked up.
            return Reason.NOT_STORED
        loaded = load_extent(self._engine, source, frame.view, background=Background.PROMOTION)
        if loaded.result() is not None:
            return Reason.DEVICE_FAILED
        return Reason.UNSPECIFIED if is_intact(source, frame.view) else Reason.CHECKSUM

    def _is_read_more_often(self, chunk: ChunkId, victim: ChunkId) -> bool:
        with self._lock:
            return self._reads.count(chunk) > self._reads.count(victim)
