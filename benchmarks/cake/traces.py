"""When computing and loading alone had how much: what the oracle is asked with. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.restore.testing.oracle import best_meeting


@dataclass(frozen=True, slots=True)
class ComputeTrace:
    """At ``times_s[i]`` the first ``positions[i]`` tokens were computed; 0 tokens at 0 s.

    Both ascend. A meeting point may lie within a step: there tokens are taken to be computed
    evenly.
    """

    times_s: tuple[float, ...]
    positions: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.times_s) != len(self.positions) or not self.positions:
            raise ValueError("a trace has as many times as positions, and at least one")

    def at_s(self, position: int) -> float:
        """When so many tokens were computed; raises ValueError for more than there are."""
        if position > self.positions[-1]:
            raise ValueError(f"the trace ends at token {self.positions[-1]}, before {position}")
        after = bisect_left(self.positions, position)
        before_position = self.positions[after - 1] if after else 0
        before_s = self.times_s[after - 1] if after else 0.0
        if position == before_position:
            return before_s
        share = (position - before_position) / (self.positions[after] - before_position)
        return before_s + share * (self.times_s[after] - before_s)


def oracle_s(
    compute: ComputeTrace,
    loaded_at_s: Sequence[float],
    *,
    chunk_tokens: int,
    alone_s: float,
    rest_s: float,
) -> float:
    """The least TTFT of any meeting point, of computing alone (``alone_s``) and loading alone.

    ``loaded_at_s[i]`` is when the last i chunks of the history are loaded, ``rest_s`` what the
    tokens behind the history take. Both sides are taken to work beside each other without
    hindrance, and taking what was loaded into the cache to cost nothing.
    """
    chunk_count = len(loaded_at_s) - 1
    computed_at_s = [compute.at_s(chunk * chunk_tokens) for chunk in range(chunk_count + 1)]
    return min(alone_s, best_meeting(computed_at_s, loaded_at_s).duration_s + rest_s)
