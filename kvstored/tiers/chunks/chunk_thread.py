"""Work on stored chunks that nobody waits for, one chunk at a time."""

import logging
import queue
import threading
from collections.abc import Callable

from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.write.chunk_store import ChunkStore

LOGGER = logging.getLogger(__name__)


class ChunkThread:
    """One thread, which does ``work`` for each chunk that is offered. Thread-safe.

    A chunk is pinned while the thread works on it, and is passed over if it has changed since it
    was offered. An error of ``work`` is logged and ends nothing.
    """

    def __init__(
        self,
        work: Callable[[StoredChunk], None],
        *,
        store: ChunkStore,
        name: str,
        waiting_max: int,
    ) -> None:
        self._work = work
        self._store = store
        self._queue: queue.Queue[StoredChunk | None] = queue.Queue(waiting_max)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, source: StoredChunk) -> bool:
        """Has a chunk wait for its turn; False where too many wait or it closes. Never blocks."""
        if self._is_closing:
            return False
        try:
            self._queue.put_nowait(source)
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Ends the thread after the chunk in progress; those that wait are forgotten."""
        self._is_closing = True
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (source := self._queue.get()) is not None:
            if self._is_closing:
                continue
            self._store.pins.pin([source.chunk])
            try:
                # It may have been evicted or quarantined since it was offered.
                if self._store.find([source.chunk]) == [source.record]:
                    self._work(source)
            except Exception:
                LOGGER.exception("%s: a chunk is given up", self._thread.name)
            finally:
                self._store.pins.unpin([source.chunk])
