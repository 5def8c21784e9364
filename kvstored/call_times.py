"""How long calls took, as counts in buckets of time. Pure values."""

from dataclasses import dataclass

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds; what takes longer than the last one is in a bucket of its own."""


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Calls of one verb since the start: ``counts`` has one more entry than BUCKETS_S."""

    counts: tuple[int, ...]
    sum_s: float
    refused_count: int
    """Those of them that ended with an error."""
