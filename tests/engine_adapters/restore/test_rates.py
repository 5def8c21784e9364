import pytest

from engine_adapters.restore import ComputeCost, LoadCost, Rates, TokenRange


def test_only_the_time_between_chunks_is_eased() -> None:
    """It alone is measured by what a plan that loads nothing does not do."""
    rates = Rates(LoadCost(chunk_s=1.0, project_s=1.0), token_budget=16)
    for mean in (rates.chunk_s, rates.project_s, rates.slowness):
        mean.add(512 * 9.0, units=512)
    rates.ease()
    assert rates.chunk_s.value == pytest.approx(1 + 8 * 7 / 8)
    assert rates.project_s.value == rates.slowness.value == 9.0


def test_a_short_step_that_was_disturbed_counted_as_much_as_a_long_one() -> None:
    """A step of a tenth of the budget took six times as long: others will not for that."""
    cost = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
    rates = Rates(None, token_budget=100)
    rates.measure_step(cost, TokenRange(0, 10), 60.0)
    assert rates.slowness.value == pytest.approx((1 + 0.6) / 1.1)


def test_doubt_is_the_worst_surprise_of_either_side() -> None:
    cost = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
    rates = Rates(LoadCost(chunk_s=1.0), token_budget=10, doubt=1.5)
    assert rates.doubt == 1.5
    rates.measure_step(cost, TokenRange(0, 10), 20.0)
    assert rates.doubt == 2.0
    rates.measure_chunks(1, 1 / 3)
    assert rates.doubt == pytest.approx(3.0)
    rates.measure_chunks(1, 0.0)
    assert rates.doubt == 4.0


def test_loading_costs_what_was_measured_lately() -> None:
    expected = LoadCost(chunk_s=1.0, project_s=2.0)
    rates = Rates(expected, token_budget=16)
    assert rates.load_cost(expected) == expected
    rates.chunk_s.add(4 * 3.0, units=4)
    assert rates.load_cost(expected) == LoadCost(chunk_s=2.0, project_s=2.0)


def test_chunks_that_seem_to_come_at_once_take_some_time() -> None:
    rates = Rates(None, token_budget=16)
    assert rates.load_cost(LoadCost(chunk_s=1.0)).chunk_s > 0


def test_loads_that_share_the_rates_share_the_time() -> None:
    rates = Rates(None, token_budget=1)
    assert rates.loads is rates.loads


def test_loads_that_share_the_rates_learn_from_the_same_answers() -> None:
    rates = Rates(None, token_budget=1)
    assert rates.answers is rates.answers
