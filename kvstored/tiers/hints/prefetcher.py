"""Brings what waiting requests need from the devices into DRAM, before they ask for it.

AttentionStore, section 3.3.1. The window, L_pw = C_mem / S_kv, is the head of the queue that fits
DRAM without the buffer of its watermarks (``policy/prefetch_plan``).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import Background, IoEngine
from kvstored.store.index.index import IndexFailure
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.chunk_fetcher import ChunkFetcher
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.policy.prefetch_plan import WaitingSequence, Watermarks, plan_prefetch
from kvstored.turnstile import TURNSTILE

LOGGER = logging.getLogger(__name__)

PLANNED_AT_ONCE = 256
"""Chunks after which a new plan is made."""
LOADED_AT_ONCE = 16
"""Chunks that are on their way together."""
LOW_SHARE, HIGH_SHARE = 0.02, 0.05
"""Parts of DRAM that are kept free while somebody waits."""


def watermarks(capacity_bytes: int) -> Watermarks:
    """The free buffer of a tier."""
    return Watermarks(
        low_bytes=int(capacity_bytes * LOW_SHARE), high_bytes=int(capacity_bytes * HIGH_SHARE)
    )


class Prefetcher:
    """One thread that carries out plans. ``wake`` is thread-safe.

    ``waiting`` gives the sequences that wait and count for DRAM, the first to run first. After a
    change of the queue each chunk is tried once: what is not stored, not intact, or finds no room
    is read when it is asked for.
    """

    def __init__(
        self,
        *,
        waiting: Callable[[], list[WaitingSequence[ChunkId]]],
        store: ChunkStore,
        dram: DramTier,
        engine: IoEngine,
        counters: Counters,
    ) -> None:
        self._waiting = waiting
        self._dram = dram
        self._fetcher = ChunkFetcher(
            store=store, dram=dram, engine=engine, background=Background.PREFETCH
        )
        self._counters = counters
        self._marks = watermarks(dram.space.capacity_bytes)
        self._tried: set[ChunkId] = set()
        self._has_changed = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kvstored-prefetch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Hears that the queue has changed; never blocks."""
        self._has_changed.set()

    def close(self) -> None:
        """Ends the thread after the loads in progress."""
        self._is_closing = True
        self._has_changed.set()
        self._thread.join()

    def __contains__(self, chunk: object) -> bool:
        """Whether a chunk need not be fetched: it is in DRAM, or was tried."""
        return isinstance(chunk, ChunkId) and (self._dram.contains(chunk) or chunk in self._tried)

    def _run(self) -> None:
        while not self._is_closing:
            self._has_changed.wait()
            self._has_changed.clear()
            self._tried.clear()
            try:
                while not self._is_stale and self._carry_out_plan():
                    pass
            except IndexFailure as error:
                LOGGER.warning("nothing is fetched ahead: %s", error)
            except Exception:
                LOGGER.exception("%s: a plan is given up", self._thread.name)

    @property
    def _is_stale(self) -> bool:
        return self._is_closing or self._has_changed.is_set()

    def _carry_out_plan(self) -> bool:
        """Fetches the first chunks that the queue lacks; False when there was none to try."""
        waiting = self._waiting()
        if not waiting:
            return False
        space = self._dram.space
        self._dram.hints.free_up(self._marks.bytes_to_free(space.free_bytes))
        plan = plan_prefetch(
            self._until_stale(waiting),
            self,
            capacity_bytes=space.capacity_bytes - self._marks.high_bytes,
        )
        # As a list: what is tried meanwhile is not planned again.
        chunks = list(islice(chain.from_iterable(plan), PLANNED_AT_ONCE))
        for start in range(0, len(chunks), LOADED_AT_ONCE):
            if self._is_stale:
                break
            self._fetch(chunks[start : start + LOADED_AT_ONCE])
        return bool(chunks)

    def _until_stale(
        self, waiting: Iterable[WaitingSequence[ChunkId]]
    ) -> Iterator[WaitingSequence[ChunkId]]:
        """A plan may look through all of DRAM: others pass, and a new queue ends it."""
        for sequence in waiting:
            if self._is_stale:
                return
            TURNSTILE.give_way()
            yield sequence

    def _fetch(self, chunks: Sequence[ChunkId]) -> None:
        """Loads those of some chunks that are on the devices, together."""
        self._tried.update(chunks)
        fetched = self._fetcher.fetch(chunks, may_evict=self._may_go)
        self._counters.add("prefetched_chunks", len(fetched))
        self._counters.add(
            "prefetched_bytes", sum(source.geometry.extent_bytes for source in fetched)
        )

    def _may_go(self, victim: ChunkId) -> bool:
        return not self._dram.hints.is_queued(victim)
