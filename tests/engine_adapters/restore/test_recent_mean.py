import pytest

from engine_adapters.restore.chunk_costs import LoadCost
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.recent import RecentMean


def test_it_begins_with_the_expectation_and_forgets_it() -> None:
    mean = RecentMean(10.0, weight=2, memory=4)
    assert mean.value == 10
    mean.add(4.0, units=2)
    assert mean.value == pytest.approx((20 + 4) / 4)
    for _ in range(100):
        mean.add(2.0)
    assert mean.value == pytest.approx(2)


def test_more_units_than_it_remembers_replace_all() -> None:
    mean = RecentMean(10.0, weight=2, memory=4)
    mean.add(30.0, units=10)
    assert mean.value == pytest.approx(3)


def test_an_old_amount_counts_less_than_a_new_one() -> None:
    mean = RecentMean(0.0, weight=1, memory=4)
    for amount in (100.0, *[0.0] * 20):
        mean.add(amount)
    assert mean.value < 1


def test_rates_begin_with_what_is_expected() -> None:
    rates = Rates(LoadCost(chunk_s=0.5), token_budget=256)
    assert rates.chunk_s.value == 0.5
    assert rates.slowness.value == 1
    assert rates.step_tokens.value == 256
    assert Rates(None, token_budget=256).chunk_s.value == 0


def test_easing_goes_back_to_what_was_expected_and_not_beyond() -> None:
    mean = RecentMean(1.0, weight=4, memory=8)
    mean.ease()
    assert mean.value == 1.0
    mean.add(72.0, units=8)
    values = []
    for _ in range(3):
        mean.ease()
        values.append(mean.value)
    assert values == pytest.approx([1 + 8 * (7 / 8) ** n for n in (1, 2, 3)])
    mean.add(4.0, units=8)
    mean.ease()
    assert mean.value == 0.5
