from dataclasses import replace

import pytest

from benchmarks.cake.step_costs import TimedStep, fitted_cost
from engine_adapters.restore import ComputeCost

PLACES = [(0, 512), (0, 128), (2000, 512), (2000, 128), (4000, 512)]


def steps_of(cost: ComputeCost) -> list[TimedStep]:
    return [
        TimedStep(
            first=first,
            token_count=count,
            duration_s=cost.compute_s(first, first + count, count),
        )
        for first, count in PLACES
    ]


def test_costs_are_found_again() -> None:
    cost = ComputeCost(step_s=0.01, token_s=2e-4, attention_s=5e-8)
    found = fitted_cost(steps_of(cost))
    assert found.step_s == pytest.approx(cost.step_s)
    assert found.token_s == pytest.approx(cost.token_s)
    assert found.attention_s == pytest.approx(cost.attention_s)


def test_no_cost_is_negative() -> None:
    steps = [
        TimedStep(first=first, token_count=count, duration_s=1e-3 * count - 0.02)
        for first, count in PLACES
    ]
    found = fitted_cost(steps)
    assert found.step_s == 0
    assert min(found.token_s, found.attention_s) >= 0


def test_steps_that_took_longer_by_chance_leave_a_cost_of_tokens() -> None:
    steps = [
        replace(step, duration_s=(10 if step.first else 1) * step.duration_s)
        for step in steps_of(ComputeCost(step_s=0.0, token_s=1e-6, attention_s=4e-7))
    ]
    assert fitted_cost(steps).token_s > 0


def test_nothing_is_fitted_to_nothing() -> None:
    with pytest.raises(ValueError, match="without a measured step"):
        fitted_cost([])
