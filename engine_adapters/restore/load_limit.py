"""How long a load is waited for while nothing of it is computed."""

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.ranges import TokenRange
from engine_adapters.restore.read_pace import ReadPace
from engine_adapters.restore.stake import LEAST_WAIT_S, Stake, Verdict

PACE_SHARE = 64
"""The pace of a load is that of the last one part in so many of its bytes."""


class LoadLimit:
    """The stake and the pace of one load, whose end is followed by computing what is missing.

    So a load that was given up is not tried again, and there is no choice but to wait or to
    compute. Times are those of any clock that the caller keeps to. Not thread-safe.
    """

    def __init__(
        self,
        compute: ComputeCost,
        tokens: TokenRange,
        *,
        byte_count: int,
        step_tokens: float,
        least_wait_s: float = LEAST_WAIT_S,
        now_s: float,
    ) -> None:
        """``tokens`` are loaded in ``byte_count`` bytes, from ``now_s`` on."""
        self._stake = Stake(
            compute,
            tokens.stop,
            first_token=tokens.first,
            step_tokens=step_tokens,
            least_wait_s=least_wait_s,
        )
        self._byte_count = byte_count
        self._pace = ReadPace(
            memory_bytes=byte_count / PACE_SHARE, evidence_s=self._stake.evidence_s, now_s=now_s
        )
        self._looked_s = now_s
        self._arrived_bytes = 0

    @property
    def look_s(self) -> float:
        """Longest sleep before the next look: until it may be another answer."""
        return self._stake.look_s

    def look(self, now_s: float, arrived_bytes: int, *, is_reading: bool = True) -> None:
        """``arrived_bytes`` have come in all; the time since the last look is spent."""
        self._stake.spend(now_s - self._looked_s)
        self._looked_s = now_s
        self._arrived_bytes = arrived_bytes
        self._pace.observe(now_s, arrived_bytes, is_reading=is_reading)

    def pass_over(self, duration_s: float) -> None:
        """So long, before the next look, others than the store were waited for.

        That is spent as all time is, but says nothing of the pace.
        """
        self._pace.pass_over(duration_s)

    def gain(self, first: int, stop: int) -> None:
        """Tokens ``first`` to ``stop - 1`` have their states and need not be computed."""
        self._stake.gain(first, stop)

    def is_waited_for(self, first: int, stop: int, *, missing_bytes: int | None = None) -> bool:
        """Whether to wait for tokens ``first`` to ``stop - 1``, by what was seen last.

        ``missing_bytes`` are theirs; all that have not come where none are given.
        """
        if missing_bytes is None:
            missing_bytes = max(0, self._byte_count - self._arrived_bytes)
        load_s = self._pace.remaining_s(missing_bytes)
        return self._stake.verdict(first, stop, load_s=load_s) is Verdict.WAIT
