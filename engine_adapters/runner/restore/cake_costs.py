"""What a restoration that computes and loads at once expects of either."""

from dataclasses import dataclass, replace

from engine_adapters.restore import ComputeCost, LoadCost, Rates, Source

CHUNK_S_MIN = 1e-9
"""Chunks that were seen to arrive at the same time still take some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CakeCosts:
    """What a restoration expects: ``rates`` are shared, and measured by all that share them."""

    compute: ComputeCost
    load: LoadCost
    source: Source
    rates: Rates

    @property
    def step_tokens(self) -> float:
        """Tokens that a step may have of the request."""
        return max(1.0, self.rates.step_tokens.value)

    def alone_s(self, prompt_tokens: int) -> float:
        """Seconds of computing a prompt without the store."""
        compute = self.rates.compute_cost(self.compute)
        return compute.compute_s(0, prompt_tokens, self.step_tokens)

    def load_now(self) -> LoadCost:
        """The cost of loading by what was measured lately."""
        return replace(
            self.load,
            chunk_s=max(CHUNK_S_MIN, self.rates.chunk_s.value),
            project_s=self.rates.project_s.value,
        )
