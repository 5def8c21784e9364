"""Damage that a read met is confirmed before the chunk is quarantined.

Reads are verified in the arena, which the client can write: a client that scribbles
over its destination, or a transfer that went wrong once, looks like damage on the
device. For the reader the chunk is a miss at once; whether it is one for everybody is
decided by reading it again into private memory.
"""

import logging
import queue
import threading

from kvstored.counters import Counters
from kvstored.io.engine import Background, IoEngine
from kvstored.io.memory import AlignedMemory
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.extent_load import is_intact, load_extent

LOGGER = logging.getLogger(__name__)

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
        self._queue: queue.Queue[StoredChunk | None] = queue.Queue(WAITING_CHUNKS_MAX)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kvstored-damage", daemon=True)
        self._thread.start()

    def suspect(self, source: StoredChunk) -> None:
        """Hears of a mismatch; never blocks."""
        self._counters.add("suspected_chunks")
        try:
            self._queue.put_nowait(source)
        except queue.Full:
            self._counters.add("suspicions_dropped")

    def close(self) -> None:
        """Ends the thread after the suspicion in progress; the others are met again, if true."""
        self._is_closing = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (source := self._queue.get()) is not None:
            if self._is_closing:
                continue
            self._store.pins.pin([source.chunk])
            try:
                # Evicted or quarantined since: there is nothing to decide.
                if self._store.find([source.chunk]) == [source.record]:
                    self._decide(source)
            except Exception:
                LOGGER.exception("a suspicion could not be confirmed")
            finally:
                self._store.pins.unpin([source.chunk])

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
