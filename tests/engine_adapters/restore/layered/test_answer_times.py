"""A store is waited for as long as its answers take, and no longer once it gave none."""

import pytest

from engine_adapters.restore import AnswerTimes
from engine_adapters.restore.layered.answer_times import (
    ANSWER_MARGIN,
    ANSWER_SHARE,
    ANSWERS_REMEMBERED,
)


def answers(*answers_s: float) -> AnswerTimes:
    times = AnswerTimes()
    for answer_s in answers_s:
        times.add(answer_s)
    return times


def test_nothing_is_known_of_a_store_that_has_not_answered() -> None:
    assert answers().wait_s(100.0) == 0.0


def test_the_slowest_answer_counts_with_a_margin() -> None:
    assert answers(0.01, 0.03, 0.02).wait_s(100.0) == pytest.approx(ANSWER_MARGIN * 0.03)


def test_a_slow_answer_is_forgotten_after_some_others() -> None:
    times = answers(0.5, *[0.01] * (ANSWERS_REMEMBERED - 1))
    assert times.wait_s(100.0) == pytest.approx(ANSWER_MARGIN * 0.5)
    times.add(0.01)
    assert times.wait_s(100.0) == pytest.approx(ANSWER_MARGIN * 0.01)


def test_computing_bounds_the_wait() -> None:
    assert answers(5.0).wait_s(2.0) == pytest.approx(ANSWER_SHARE * 2.0)


def test_a_store_without_an_answer_has_to_show_it_again() -> None:
    times = answers(0.03)
    times.forget()
    assert times.wait_s(100.0) == 0.0
