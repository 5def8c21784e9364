"""The steps of an engine as its worker sees them."""

import time

from engine_adapters.restore import StepCosts
from engine_adapters.vllm.messages.orders import StepOrders
from engine_adapters.vllm.worker_side.engine_turn import EngineTurn


class EngineSteps:
    """What is run between two steps (``turn``), and what their computing costs (``costs``).

    ``are_timed`` is False where the end of a forward is only its launch. All methods belong to
    the engine's thread.
    """

    def __init__(self, costs: StepCosts) -> None:
        self.costs = costs
        self.turn = EngineTurn()
        self.are_timed = False
        self._began_s: float | None = None

    def forget(self) -> None:
        """The step that begins is not timed, unless ``begin`` follows."""
        self._began_s = None

    def begin(self) -> None:
        """The forward begins."""
        self._began_s = time.monotonic()

    def end(self, orders: StepOrders) -> None:
        """The forward has ended."""
        if orders.tokens.token_count and self._began_s is not None and self.are_timed:
            duration_s = time.monotonic() - self._began_s
            self.costs.measure(orders.tokens, duration_s, others_count=orders.other_tokens)
