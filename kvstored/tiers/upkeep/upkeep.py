"""What operators can do to a store, together."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstored.tiers.upkeep.chunk_search import ChunkSearch
from kvstored.tiers.upkeep.hottest import HotSequence
from kvstored.tiers.upkeep.tier_quotas import TierQuotas
from kvstored.tiers.upkeep.warmer import Warmer


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """All of it is thread-safe."""

    search: ChunkSearch
    warmer: Warmer
    quotas: TierQuotas
    staged_count: Callable[[], int]
    """Chunks that only DRAM has and that are on their way to the devices."""
    hottest: Callable[[int], list[HotSequence]]
    """Up to so many sequences, the most often read first; raises IndexFailure."""
