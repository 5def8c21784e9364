"""What computing costs in an engine, as far as its steps have shown it."""

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.ranges import TokenRange
from engine_adapters.restore.rates import Rates

_LEAST_S = 1e-9
"""A step took some time, whatever the clock says."""


class StepCosts:
    """Begins with what a profile expects, or with nothing, and is then measured by steps.

    ``step_tokens`` is what a step may have of one request. One thread measures; any may look at
    ``compute`` meanwhile.
    """

    def __init__(self, expected: ComputeCost | None, *, step_tokens: float) -> None:
        self._expected = expected
        self._rates = Rates(None, token_budget=step_tokens)
        self.step_tokens = step_tokens
        self.compute = expected
        """What computing costs now; None while there is neither a profile nor a measured step."""

    def measure(self, tokens: TokenRange, duration_s: float, *, others_count: int = 0) -> None:
        """A step computed these tokens of a request, and ``others_count`` of other requests.

        Without a profile the first step stands for all: as many seconds for each token, wherever
        it lies in its request. Later ones correct it.
        """
        duration_s = max(_LEAST_S, duration_s)
        if self._expected is None:
            token_s = duration_s / (tokens.token_count + others_count)
            self._expected = ComputeCost(step_s=0.0, token_s=token_s, attention_s=0.0)
        self._rates.measure_step(self._expected, tokens, duration_s, others_count=others_count)
        self.compute = self._rates.compute_cost(self._expected)
