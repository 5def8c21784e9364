"""What computing costs, before and after steps of the engine were measured."""

import pytest

from engine_adapters.restore import ComputeCost, StepCosts, TokenRange

EXPECTED = ComputeCost(step_s=0.01, token_s=0.001, attention_s=1e-6)
STEP_TOKENS = 512
STEP = TokenRange(512, 1024)


def test_nothing_is_known_without_a_profile_before_the_first_step() -> None:
    costs = StepCosts(None, step_tokens=STEP_TOKENS)
    assert costs.compute is None
    costs.measure(STEP, 1.0, others_count=488)
    assert costs.compute is not None
    assert costs.compute.compute_s(0, 1000, STEP_TOKENS) == pytest.approx(1.0)


def test_a_profile_is_expected_and_corrected_by_steps() -> None:
    costs = StepCosts(EXPECTED, step_tokens=STEP_TOKENS)
    assert costs.compute == EXPECTED
    for _ in range(20):
        costs.measure(STEP, 3 * EXPECTED.compute_s(*STEP, STEP_TOKENS))
    assert costs.compute is not None
    assert costs.compute.token_s == pytest.approx(3 * EXPECTED.token_s, rel=0.01)


def test_the_first_step_of_an_engine_is_forgotten() -> None:
    """It may be slow for reasons of its own."""
    costs = StepCosts(None, step_tokens=STEP_TOKENS)
    costs.measure(STEP, 51.2)
    for _ in range(24):
        costs.measure(STEP, 0.512)
    assert costs.compute is not None
    assert costs.compute.token_s == pytest.approx(0.001, rel=0.25)


def test_a_step_without_a_duration_takes_some_time() -> None:
    costs = StepCosts(None, step_tokens=STEP_TOKENS)
    costs.measure(STEP, 0.0)
    assert costs.compute is not None
    assert costs.compute.token_s > 0
