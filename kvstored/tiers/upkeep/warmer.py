"""Brings what an operator names into DRAM, before anybody reads it."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import Background, IoEngine
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.chunk_fetcher import ChunkFetcher
from kvstored.tiers.chunks.dram import DramTier

WARMED_AT_ONCE = 16
"""Chunks that are on their way together."""


@dataclass(frozen=True, slots=True)
class Warmth:
    """Chunks that were loaded, that were there before, and that are not there."""

    loaded: int = 0
    resident: int = 0
    left: int = 0

    def __add__(self, other: "Warmth") -> "Warmth":
        return Warmth(
            self.loaded + other.loaded, self.resident + other.resident, self.left + other.left
        )


class Warmer:
    """Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, counters: Counters
    ) -> None:
        self._dram = dram
        self._counters = counters
        self._fetcher = ChunkFetcher(
            store=store, dram=dram, engine=engine, background=Background.PROMOTION
        )

    def warm(self, chunks: Sequence[ChunkId], kept: Container[ChunkId]) -> Warmth:
        """Loads some chunks; evicts neither ``kept`` ones nor what waiting requests need.

        Waits for the devices; raises IndexFailure.
        """
        resident = self._dram.which_are_here(chunks)
        absent = [chunk for chunk in dict.fromkeys(chunks) if chunk not in resident]

        def may_evict(victim: ChunkId) -> bool:
            return victim not in kept and not self._dram.hints.is_queued(victim)

        loaded = self._fetcher.fetch(absent, may_evict=may_evict).loaded
        self._counters.add("warmed_chunks", len(loaded))
        return Warmth(len(loaded), len(resident), len(absent) - len(loaded))
