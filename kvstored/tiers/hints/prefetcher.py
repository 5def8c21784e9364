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
RETRY_S, RETRY_S_MAX = 0.05, 0.8
"""Until chunks that found no room are tried again; twice as long each time, up to the longest."""
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
    change of the queue each chunk is tried once: what is not stored or not intact is read when it
    is asked for. Where one finds no room, those of its namespace rest until there is some: a
    request that runs keeps its own chunks in DRAM until it has read them.
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
        self._unplaced: list[ChunkId] = []
        """Tried chunks that found no room, and those of their namespaces that come after them."""
        self._full: set[bytes] = set()
        """Namespaces of which nothing found room when some were last tried together."""
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
        retry_s = RETRY_S
        while not self._is_closing:
            has_changed = self._has_changed.wait(retry_s if self._unplaced else None)
            unplaced, self._unplaced = self._unplaced, []
            self._full.clear()
            try:
                if has_changed:
                    self._has_changed.clear()
                    self._tried.clear()
                    retry_s = RETRY_S
                    while not self._is_stale and self._carry_out_plan():
                        pass
                else:
                    # All of the plan was tried: only these are left of it.
                    retry_s = RETRY_S if self._fetch(unplaced) else min(RETRY_S_MAX, 2 * retry_s)
            except IndexFailure as error:
                self._unplaced = []
                LOGGER.warning("nothing is fetched ahead: %s", error)
            except Exception:
                self._unplaced = []
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
        self._fetch(chunks)
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

    def _fetch(self, chunks: Sequence[ChunkId]) -> bool:
        """Loads those of some chunks that are on the devices, a few together in their order.

        Whether any was loaded.
        """
        has_loaded = False
        for start in range(0, len(chunks), LOADED_AT_ONCE):
            if self._is_stale:
                break
            TURNSTILE.give_way()
            some = chunks[start : start + LOADED_AT_ONCE]
            self._tried.update(some)
            self._unplaced += [chunk for chunk in some if chunk.namespace_id in self._full]
            wanted = [chunk for chunk in some if chunk.namespace_id not in self._full]
            if not wanted:
                continue
            fetched = self._fetcher.fetch(wanted, may_evict=self._may_go)
            self._unplaced += fetched.unplaced
            if not fetched.loaded:
                self._full.update(chunk.namespace_id for chunk in fetched.unplaced)
            has_loaded |= bool(fetched.loaded)
            self._counters.add("prefetched_chunks", len(fetched.loaded))
            self._counters.add(
                "prefetched_bytes", sum(source.geometry.extent_bytes for source in fetched.loaded)
            )
        return has_loaded

    def _may_go(self, victim: ChunkId) -> bool:
        return not self._dram.hints.is_queued(victim)
