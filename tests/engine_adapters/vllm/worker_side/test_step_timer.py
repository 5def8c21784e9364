"""Times of the engine's own steps."""

import pytest

from engine_adapters.restore import StepCosts, TokenRange
from engine_adapters.vllm.messages.orders import StepOrders
from engine_adapters.vllm.worker_side.step_timer import StepTimer

STEP = StepOrders(fingerprint="m", tokens=TokenRange(0, 64))


class Clock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def timer_of(*, is_on: bool = True) -> StepTimer:
    timer = StepTimer(StepCosts(None, step_tokens=64), clock=Clock())
    timer.is_on = is_on
    return timer


def test_a_step_says_what_computing_costs() -> None:
    timer = timer_of()
    timer.begin()
    timer.end(STEP)
    compute = timer.costs.compute
    assert compute is not None
    assert compute.compute_s(0, 64, 64) == pytest.approx(1.0)


def test_what_was_not_begun_or_computes_nothing_or_elsewhere_says_nothing() -> None:
    timer = timer_of()
    timer.end(STEP)
    timer.begin()
    timer.end(StepOrders(fingerprint="m"))
    timer.begin()
    timer.forget()
    timer.end(STEP)
    assert timer.costs.compute is None
    launched = timer_of(is_on=False)
    launched.begin()
    launched.end(STEP)
    assert launched.costs.compute is None
