"""How fast loading and computing were lately: what an engine learns from request to request."""

from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.recent_mean import RecentMean

CHUNKS_REMEMBERED = 8
"""Arrivals that tell how fast chunks come."""
TOKENS_REMEMBERED = 512
"""Loaded tokens that tell how long taking them takes."""
STEPS_REMEMBERED = 4
"""Steps that tell how fast tokens are computed, and how many of them a step may have."""


class Rates:
    """Begins with what is expected, and is then measured by every restoration that shares it.

    ``token_budget`` is what a step may have of the request when there is no other.
    Give the same one to all requests of one layout, so that only the first of them depends
    on the expectation. Not thread-safe.
    """

    __slots__ = ("_token_budget", "chunk_s", "project_s", "slowness", "step_tokens")

    def __init__(self, load: LoadCost | None, *, token_budget: float) -> None:
        self.chunk_s = RecentMean(
            load.chunk_s if load else 0.0, weight=CHUNKS_REMEMBERED / 2, memory=CHUNKS_REMEMBERED
        )
        """Seconds between two chunks."""
        self.project_s = RecentMean(
            load.project_s if load else 0.0, weight=TOKENS_REMEMBERED / 2, memory=TOKENS_REMEMBERED
        )
        """Seconds for which a loaded token keeps the compute side busy."""
        self.slowness = RecentMean(1.0, weight=1, memory=STEPS_REMEMBERED)
        """Times as long as a step was expected to take."""
        self.step_tokens = RecentMean(token_budget, weight=1, memory=STEPS_REMEMBERED)
        """Tokens that a step may have of the request."""
        self._token_budget = token_budget

    @property
    def others_tokens(self) -> float:
        """Tokens of a step that other requests lately took of the expected budget."""
        return max(0.0, self._token_budget - self.step_tokens.value)

    def compute_cost(self, expected: ComputeCost) -> ComputeCost:
        """What computing costs now: beside others, and as slow as steps lately were."""
        return expected.beside(self.others_tokens).scaled(self.slowness.value)

    def ease(self) -> None:
        """A plan loads nothing of what is stored, so that no arrival can prove it wrong.

        The next ones expect a little more of the store each, until one tries it again.
        """
        self.chunk_s.ease()
