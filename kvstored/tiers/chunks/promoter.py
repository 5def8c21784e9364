"""Brings chunks that are read again and again from the devices into DRAM.

A chunk is promoted after its second read, not on its first: cold reads go straight
into the arena without a copy. A read of some of its layers counts as that share of a read.
It takes the place of another chunk only if it was read more often, so that histories that
together exceed the tier do not chase each other through it (TinyLFU's rule of admission).
"""

import threading

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import Background, IoEngine
from kvstored.store.read.chunk_source import ChunkSource, StoredChunk
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.chunk_thread import ChunkThread
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.extent_load import FrameLoad, FrameLoader
from kvstored.tiers.policy.use_counts import UseCounts

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
        self._dram = dram
        self._loader = FrameLoader(
            store=store, dram=dram, engine=engine, background=Background.PROMOTION
        )
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

    def read_count(self, chunk: ChunkId) -> float:
        """Reads of the whole chunk that are remembered; old ones fade."""
        with self._lock:
            return self._reads.count(chunk)

    def close(self) -> None:
        """Ends the thread after the promotion in progress."""
        self._work.close()

    def _load(self, source: StoredChunk) -> None:
        load = self._loader.begin(
            source, may_evict=lambda victim: self._may_displace(source.chunk, victim)
        )
        if isinstance(load, FrameLoad) and self._loader.end(load):
            self._counters.add("promoted_chunks")

    def _may_displace(self, chunk: ChunkId, victim: ChunkId) -> bool:
        if self._dram.hints.is_queued(victim):
            return False
        with self._lock:
            return self._reads.count(chunk) > self._reads.count(victim)
