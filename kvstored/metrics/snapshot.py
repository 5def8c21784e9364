"""What is known of a daemon at one moment. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvstored.call_times import CallTimes
from kvstored.tiers.chunks.status import StoreStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """``usage`` has what all sessions together hold, by name."""

    stats: StoreStats
    usage: Mapping[str, int]
    times: Mapping[str, CallTimes]
    """By verb."""
    uptime_s: float
    is_drained: bool = False
    """Whether an operator has it take nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRow:
    """A sequence that is read much, and its namespace as people know it."""

    namespace: str
    name: str
    chunk_count: int
    dram_chunk_count: int
    reads: float
