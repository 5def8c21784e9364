"""How fast loading and computing were lately: what an engine learns from request to request."""

import math
from dataclasses import replace

from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.layered.answer_times import AnswerTimes
from engine_adapters.restore.load_clock import LoadShares
from engine_adapters.restore.ranges import TokenRange
from engine_adapters.restore.recent import DOUBT_MOST, NO_DOUBT, Doubt, RecentMean

CHUNKS_REMEMBERED = 8
"""Arrivals that tell how fast chunks come."""
TOKENS_REMEMBERED = 512
"""Loaded tokens that tell how long taking them takes."""
CHUNK_S_MIN = 1e-9
"""Chunks that were seen to arrive at the same time still take some."""
STEPS_REMEMBERED = 4
"""Steps that tell how fast tokens are computed, and how many of them a step may have."""


class Rates:
    """Begins with what is expected, and is then measured by every restoration that shares it.

    ``token_budget`` is what a step may have of the request when there is no other, ``doubt`` how
    many times as much as expected a step or a chunk may take at first. Give the same one to all
    requests of one layout, so that only the first of them depends on the expectation. Not
    thread-safe.
    """

    __slots__ = (
        "_answers",
        "_loads",
        "_token_budget",
        "chunk_doubt",
        "chunk_s",
        "project_s",
        "slowness",
        "step_doubt",
        "step_tokens",
    )

    def __init__(
        self, load: LoadCost | None, *, token_budget: float, doubt: float = NO_DOUBT
    ) -> None:
        self.chunk_s = RecentMean(
            load.chunk_s if load else 0.0, weight=CHUNKS_REMEMBERED / 2, memory=CHUNKS_REMEMBERED
        )
        """Seconds between two chunks."""
        self.project_s = RecentMean(
            load.project_s if load else 0.0, weight=TOKENS_REMEMBERED / 2, memory=TOKENS_REMEMBERED
        )
        """Seconds for which a loaded token keeps the compute side busy."""
        self.slowness = RecentMean(1.0, weight=1, memory=STEPS_REMEMBERED)
        """Times as long as a step was expected to take; one of few tokens counts as little."""
        self.step_doubt = Doubt(doubt)
        """Times as long as a step is expected to take by the steps before it."""
        self.chunk_doubt = Doubt(doubt)
        """Times as fast as chunks are expected to come by those before them."""
        self.step_tokens = RecentMean(token_budget, weight=1, memory=STEPS_REMEMBERED)
        """Tokens that a step may have of the request."""
        self._answers: AnswerTimes | None = None
        self._loads: LoadShares | None = None
        self._token_budget = token_budget

    @property
    def loads(self) -> LoadShares:
        """Those that wait for the store together; Cake computes meanwhile and asks for none."""
        if self._loads is None:
            self._loads = LoadShares()
        return self._loads

    @property
    def answers(self) -> AnswerTimes:
        """How long the store took until the first bytes of histories by layers; of no others."""
        if self._answers is None:
            self._answers = AnswerTimes()
        return self._answers

    @property
    def others_tokens(self) -> float:
        """Tokens of a step that other requests lately took of the expected budget."""
        return max(0.0, self._token_budget - self.step_tokens.value)

    def compute_cost(self, expected: ComputeCost) -> ComputeCost:
        """What computing costs now: beside others, and as slow as steps lately were."""
        return expected.beside(self.others_tokens).scaled(self.slowness.value)

    def load_cost(self, expected: LoadCost) -> LoadCost:
        """What loading costs by what was measured lately."""
        return replace(
            expected,
            chunk_s=max(CHUNK_S_MIN, self.chunk_s.value),
            project_s=self.project_s.value,
        )

    @property
    def doubt(self) -> float:
        """Times as many chunks as expected that may come while a step is computed."""
        return max(self.step_doubt.value, self.chunk_doubt.value)

    def measure_step(
        self, expected: ComputeCost, tokens: TokenRange, duration_s: float, *, others_count: int = 0
    ) -> None:
        """A step computed these tokens of a request, and ``others_count`` of other requests.

        What the others' took is no slowness, but for their attention, since it is not known how
        many tokens are before them.
        """
        expected_s = expected.compute_s(tokens.first, tokens.stop, tokens.token_count)
        expected_s += expected.token_s * others_count
        slowness = duration_s / expected_s
        self.step_doubt.add(slowness / self.slowness.value)
        full_stop = tokens.first + math.ceil(self._token_budget)
        full_s = expected.compute_s(tokens.first, full_stop, self._token_budget)
        share = min(1.0, expected_s / full_s)
        self.slowness.add(share * slowness, units=share)

    def measure_chunks(self, count: int, chunk_s: float) -> None:
        """So many chunks came, each that long after the one before it."""
        self.chunk_doubt.add(self.chunk_s.value / chunk_s if chunk_s else DOUBT_MOST)
        self.chunk_s.add(count * chunk_s, units=count)

    def ease(self) -> None:
        """A plan loads nothing of what is stored, so that no arrival can prove it wrong.

        The next ones expect a little more of the store each, until one tries it again.
        """
        self.chunk_s.ease()
