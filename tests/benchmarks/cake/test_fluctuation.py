import statistics

import pytest

from benchmarks.cake.fluctuation import Fluctuation


def drawn(seed: int = 1) -> Fluctuation:
    return Fluctuation(seed, most=10.0, interval_s=0.5)


def test_a_value_lasts_for_its_interval() -> None:
    speed = drawn()
    assert speed.value(3.0) == speed.value(3.49) != speed.value(3.5)


def test_values_are_uniform_up_to_the_most() -> None:
    values = [drawn().value(number / 2) for number in range(2000)]
    assert 0 <= min(values) < max(values) < 10
    assert statistics.mean(values) == pytest.approx(5, abs=0.3)


def test_equal_seeds_give_equal_values() -> None:
    assert drawn(3).value(77.0) == drawn(3).value(77.0) != drawn(4).value(77.0)


def test_the_integral_adds_up_stretches_and_parts_of_them() -> None:
    speed = drawn()
    expected = 0.25 * speed.value(1.25) + 0.5 * speed.value(1.5) + 0.1 * speed.value(2.0)
    assert speed.sum_between(1.25, 2.1) == pytest.approx(expected)
    assert speed.sum_between(1.25, 1.25) == 0


def test_an_amount_is_reached_when_the_integral_has_it() -> None:
    speed = drawn()
    for amount in (0.0, 0.3, 4.0, 25.0):
        stop_s = speed.reached_s(1.25, amount)
        assert speed.sum_between(1.25, stop_s) == pytest.approx(amount)
