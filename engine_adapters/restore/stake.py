"""What a restoration may lose by loading, so that it never takes much longer than computing."""

from enum import StrEnum

from engine_adapters.restore.chunk_costs import ComputeCost

STAKE_SHARE = 0.04
"""Of computing everything: what loading may cost in vain. What is left of the promise of 1.05 is
for a look that comes late and for states that were taken into the cache and lost again."""

LEAST_WAIT_S = 0.02
"""What loading may cost in vain at least, however little there is to compute: answering takes the
store some milliseconds. It is within the stake where computing takes half a second or longer; where
it takes less than 0.4 s this alone exceeds the promise, by what nobody notices."""

BLIND_SHARE = 0.02
"""Of computing everything: the part of the stake that is spent on a reader that has not shown any
pace. The rest is for one that brings states faster than they are computed."""

EVIDENCE_SHARE = 0.01
"""Of computing everything: after a silence of that length it says something of the reader."""


COMPUTED_SHARE = 0.5
"""What is computed while it is loaded is loaded in vain as far as computing gets meanwhile: if that
is more than this share of it, loading what is behind it is worth more."""


class Verdict(StrEnum):
    """What to do while the states that are needed next have not arrived."""

    WAIT = "wait"
    """They are likely to come sooner than they are computed, and can be waited for."""
    COMPUTE = "compute"
    """Nothing is left to be lost: compute them, and take them all the same if they come first."""
    DROP = "drop"
    """Computing them takes less than what is left of loading them: load what is behind them."""


class Stake:
    """Time that loading has cost against computing that it has saved. Not thread-safe.

    It begins with ``share`` of computing the tokens from ``first_token`` to ``token_count``, or
    with ``least_wait_s`` if that is more. Waiting and taking loaded states into the cache spend it;
    every token that was loaded gains what computing it would have cost. Computing neither spends
    nor gains.

    Invariant, as long as nobody waits once nothing is left: time so far and computing what is
    missing are together at most that much longer than computing everything, whatever the store
    does from here on. So a fast store earns what it takes to wait for it, and a slow one is left
    after ``share``.

    A reader is believed at its latest pace: ``verdict`` gives up what would take longer to load
    than to compute before the stake is spent on it, though not before ``least_wait_s``. Cake
    (section 4) does the same for chunks. A reader whose pace is unknown is waited for no longer
    than ``blind_share``, or ``least_wait_s`` if that is more. Until it has ``answered``,
    ``answer_wait_s`` is waited in any case as well, and may exceed the stake.
    """

    def __init__(
        self,
        compute: ComputeCost,
        token_count: int,
        *,
        first_token: int = 0,
        step_tokens: float,
        share: float = STAKE_SHARE,
        blind_share: float = BLIND_SHARE,
        least_wait_s: float = 0.0,
        answer_wait_s: float = 0.0,
    ) -> None:
        self._compute = compute
        self._step_tokens = step_tokens
        self._whole_s = self.compute_s(first_token, token_count)
        self._left_s = self._first_s = max(share * self._whole_s, least_wait_s)
        self._least_s = least_wait_s
        self._free_s = max(least_wait_s, answer_wait_s)
        self._reserve_s = max(0.0, share - blind_share) * self._whole_s

    @property
    def left_s(self) -> float:
        """Seconds that may still be spent; 0 when nothing is left."""
        return max(0.0, self._left_s)

    @property
    def look_s(self) -> float:
        """Longest sleep before the next verdict: until it may be another one."""
        if self._free_s > 0:
            return self._free_s
        blind_s = self._left_s - self._reserve_s
        return min(self.evidence_s, blind_s if blind_s > 0 else self.left_s)

    @property
    def evidence_s(self) -> float:
        """Seconds after which even a reader that has brought little is judged by it; above 0."""
        return max(self._free_s, EVIDENCE_SHARE * self._whole_s)

    def compute_s(self, first: int, stop: int) -> float:
        """Seconds of computing tokens ``first`` to ``stop - 1``."""
        return self._compute.compute_s(first, stop, self._step_tokens)

    def spend(self, duration_s: float) -> None:
        """So long nothing was computed: states were waited for, or taken into the cache."""
        self._left_s -= duration_s
        self._free_s -= duration_s
        self._least_s -= duration_s

    def answered(self) -> None:
        """The first bytes came: what waiting for them took beyond the stake is owed no more.

        The blind part of the stake is left, at least, and the time in which a pace shows.
        """
        self._free_s = max(self._least_s, EVIDENCE_SHARE * self._whole_s)
        self._left_s = max(self._left_s, self._reserve_s)

    def gain(self, first: int, stop: int) -> None:
        """Tokens ``first`` to ``stop - 1`` are in the cache and need not be computed."""
        self._left_s += self.compute_s(first, stop)

    def settle(self, compute: ComputeCost, first_token: int, token_count: int) -> None:
        """From now on what is lost of these tokens is computed at this cost, and nothing else is.

        Until now more was lost with them. No more may be lost by waiting than computing them takes.
        """
        self._compute = compute
        self._whole_s = self.compute_s(first_token, token_count)
        self._left_s = min(self._left_s, self._whole_s)
        self._reserve_s = min(self._reserve_s, self._whole_s)

    def recover(self, share: float) -> None:
        """That share of all came, and may be of no use yet: what it took is staked once more.

        Never more is left than there was at first, so that this gains nothing.
        """
        self._left_s = max(self._left_s, min(self._first_s, self._left_s + share * self._whole_s))

    def verdict(self, first: int, stop: int, *, load_s: float | None) -> Verdict:
        """What to do about tokens ``first`` to ``stop - 1``, which are on their way.

        ``load_s`` is how long they will still be, by the latest pace; None where nothing is known.
        """
        if self._free_s > 0:
            return Verdict.WAIT
        compute_s = self.compute_s(first, stop)
        if load_s is None:
            return Verdict.WAIT if self._left_s > self._reserve_s else Verdict.COMPUTE
        if load_s > (compute_s if self._left_s > 0 else COMPUTED_SHARE * compute_s):
            return Verdict.DROP
        return Verdict.WAIT if self._left_s > 0 else Verdict.COMPUTE

    def opening(self, first: int, stop: int, *, load_s: float | None) -> Verdict:
        """What to do while nothing that was asked for is on its way: WAIT or COMPUTE.

        Tokens ``first`` to ``stop - 1`` would be loaded next, in ``load_s`` by the latest pace.
        """
        verdict = self.verdict(first, stop, load_s=load_s)
        return Verdict.WAIT if verdict is Verdict.WAIT else Verdict.COMPUTE


FIRST_SHARE = 16
"""The first span of a history is one part in so many of it, so that what it takes at a pace of half
of computing everything is about the stake."""


def first_span_chunks(history_chunks: int, *, span_chunks: int) -> int:
    """Chunks of the first span of a history, at least one; each later one may be twice as long.

    What is lost with a span that never comes is what was waited for it. So little is asked for
    first, and more when something has been gained.
    """
    return max(1, min(span_chunks, history_chunks // FIRST_SHARE))
