"""How long the engine's own steps take: what computing costs is learnt from them."""

import time
from collections.abc import Callable

from engine_adapters.restore import StepCosts
from engine_adapters.vllm.messages.orders import StepOrders


class StepTimer:
    """Times the steps that compute tokens of a request, once it ``is_on``. One thread.

    It is for engines whose forward ends when the step is computed. Elsewhere, as on CUDA, the end
    of a forward is its launch, so the timer stays off.
    """

    def __init__(self, costs: StepCosts, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.costs = costs
        self.is_on = False
        self._clock = clock
        self._began_s: float | None = None

    def forget(self) -> None:
        """Nothing is timed until the next ``begin``."""
        self._began_s = None

    def begin(self) -> None:
        """The step's forward begins now."""
        self._began_s = self._clock()

    def end(self, orders: StepOrders) -> None:
        """The step is computed; one that was not begun, or computed nothing, says nothing."""
        if self.is_on and self._began_s is not None and orders.tokens.token_count:
            self.costs.measure(
                orders.tokens, self._clock() - self._began_s, others_count=orders.other_tokens
            )
