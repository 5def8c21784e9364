"""Damage that a read met is confirmed before the chunk is quarantined.

Reads are verified in the arena, which the client can write: a client that scribbles
over its destination, or a transfer that went wrong once, looks like damage on the
device. For the reader the chunk is a miss at once; whether it is one for everybody is
decided by reading it again into private memory.
"""

from kvstored.counters import Counters
from kvstored.io.engine import Background, IoEngine
from kvstored.io.memory import AlignedMemory
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.chunk_thread import ChunkThread
from kvstored.tiers.chunks.extent_load import is_intact, load_extent

WAITING_CHUNKS_MAX = 1024
"""Suspicions that may wait; a chunk that is not looked at now is suspected again."""


class DamageControl:
    """One thread that confirms suspicions and quarantines. Thread-safe.

    Counters: ``suspected_chunks``, and of these ``unconfirmed_chunks`` and, counted by
    the store, ``quarantined_chunks``.
    """

    def __init__(self, *, store: ChunkStore, engine: IoEngine, counters: Counters) -> None:
        self._store = store
        self._engine = engine
        self._counters = counters
        self._work = ChunkThread(
            self._decide, store=store, name="kvstored-damage", waiting_max=WAITING_CHUNKS_MAX
        )

    def suspect(self, source: StoredChunk) -> None:
        """Hears of a mismatch; never blocks."""
        self._counters.add("suspected_chunks")
        if not self._work.offer(source):
            self._counters.add("suspicions_dropped")

    def close(self) -> None:
        """Ends the thread after the suspicion in progress; the others are met again, if true."""
        self._work.close()

    def _decide(self, source: StoredChunk) -> None:
        memory = AlignedMemory(source.geometry.extent_bytes)
        try:
            loaded = load_extent(self._engine, source, memory.view, background=Background.SCRUB)
            error = loaded.result()
            if error is not None:
                self._store.failures.report(source.record.extent.device_index, error)
            elif is_intact(source, memory.view):
                self._counters.add("unconfirmed_chunks")
            else:
                self._store.quarantine(source.chunk, source.record)
        finally:
            del memory
