"""The best meeting point, known afterwards from what computing and loading really took."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """The first ``computed_chunks`` chunks computed, the others loaded."""

    computed_chunks: int
    duration_s: float


def best_meeting(computed_at_s: Sequence[float], loaded_at_s: Sequence[float]) -> Meeting:
    """The meeting that ends first (Cake, section 4: both sides busy until they meet).

    ``computed_at_s[i]`` is when the first i chunks are computed if computing never stops,
    ``loaded_at_s[i]`` when the last i chunks are loaded; both have one entry more than there
    are chunks and never fall, so traces of any shape can be asked. Raises ValueError.
    """
    if len(computed_at_s) != len(loaded_at_s) or not computed_at_s:
        raise ValueError(
            f"{len(computed_at_s)} times of computing and {len(loaded_at_s)} of loading are not "
            "those of the same chunks"
        )
    ends_s = [max(pair) for pair in zip(computed_at_s, reversed(loaded_at_s), strict=True)]
    duration_s = min(ends_s)
    return Meeting(computed_chunks=ends_s.index(duration_s), duration_s=duration_s)


def elapsed_s(durations_s: Sequence[float], *, latency_s: float = 0.0) -> list[float]:
    """When 0, 1, 2, ... things are done one after the other, ``latency_s`` before the first."""
    times_s = list(accumulate(durations_s, initial=latency_s))
    return [0.0, *times_s[1:]]
