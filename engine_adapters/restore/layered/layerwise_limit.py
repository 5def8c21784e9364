"""How long a history that comes layer after layer is waited for."""

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.layered.answer_times import AnswerTimes
from engine_adapters.restore.read_pace import ReadPace
from engine_adapters.restore.stake import (
    BLIND_SHARE,
    LEAST_WAIT_S,
    STAKE_SHARE,
    Stake,
    Verdict,
)

PACE_SHARE = 64
"""The pace of a history is that of the last one part in so many of its bytes."""


class LayerwiseLimit:
    """The stake and the pace of one history, no token of which is whole before its last layer.

    Waiting at gates, and taking layers into the cache, spend the stake; what came makes it whole
    again, but never larger: a layer is worth nothing if the last one does not come. So a store
    that falls silent has cost the stake and the time of what came, and one whose pace is that of
    computing or slower is left at once. Computing new tokens spends nothing.

    The first bytes are waited for as long as ``answers`` say that the store takes, which hears how
    long it took this time; a silence after them costs the stake again. Not thread-safe.
    """

    def __init__(
        self,
        compute: ComputeCost,
        token_count: int,
        *,
        byte_count: int,
        step_tokens: float,
        has_pace: bool = True,
        least_wait_s: float = LEAST_WAIT_S,
        answers: AnswerTimes | None = None,
        now_s: float,
    ) -> None:
        """``token_count`` are computed where ``byte_count`` bytes do not come.

        Without ``has_pace`` nothing is known of how fast bytes come (encoded states).
        """
        self._answers = AnswerTimes() if answers is None else answers
        self._stake = Stake(
            compute,
            token_count,
            step_tokens=step_tokens,
            blind_share=BLIND_SHARE if has_pace else STAKE_SHARE,
            least_wait_s=least_wait_s,
            answer_wait_s=self._answers.wait_s(compute.compute_s(0, token_count, step_tokens)),
        )
        self._token_count = token_count
        self._byte_count = byte_count
        self._has_pace = has_pace
        self._pace = ReadPace(
            memory_bytes=byte_count / PACE_SHARE, evidence_s=self._stake.evidence_s, now_s=now_s
        )
        self._looked_s = now_s
        self._arrived_bytes = 0
        self._waited_s = 0.0
        self._has_ended = False

    @property
    def look_s(self) -> float:
        """Longest sleep before the next look: until it may be another answer."""
        return self._stake.look_s

    @property
    def is_waited_for(self) -> bool:
        """Whether to wait for what is missing, by what was seen last."""
        load_s = None
        if self._has_pace:
            load_s = self._pace.remaining_s(max(0, self._byte_count - self._arrived_bytes))
        return self._stake.verdict(0, self._token_count, load_s=load_s) is Verdict.WAIT

    def look(
        self, now_s: float, arrived_bytes: int, *, was_waiting: bool, is_reading: bool = True
    ) -> None:
        """``arrived_bytes`` have come in all; nothing was computed since the last look if so."""
        if was_waiting:
            self._stake.spend(now_s - self._looked_s)
            self._waited_s += now_s - self._looked_s
        if arrived_bytes and not self._arrived_bytes:
            self._stake.answered()
            # What came while others computed says little of how long it took.
            if was_waiting:
                self._answers.add(self._waited_s)
        self._looked_s = now_s
        self._arrived_bytes = arrived_bytes
        self._pace.observe(now_s, arrived_bytes, is_reading=is_reading)

    def end(self) -> None:
        """The history is given up; once is enough."""
        if not self._has_ended:
            self._answers.forget()
        self._has_ended = True

    def take(self, now_s: float, share: float) -> None:
        """Since the look, that share of the history was taken into the cache."""
        self._stake.spend(now_s - self._looked_s)
        self._looked_s = now_s
        self._stake.recover(share)
