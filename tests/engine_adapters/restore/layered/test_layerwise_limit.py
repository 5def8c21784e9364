"""A history that comes layer by layer costs its stake where the store falls silent, and no more."""

import math
from collections.abc import Callable

import pytest

from engine_adapters.restore import AnswerTimes, ComputeCost, LayerwiseLimit
from engine_adapters.restore.layered.answer_times import ANSWER_MARGIN, ANSWER_SHARE
from engine_adapters.restore.stake import BLIND_SHARE, STAKE_SHARE

COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
TOKENS, BYTES, SLICES = 1000, 1 << 20, 256
LOOKS = 4000
"""Looks while everything could be computed once."""

Pace = Callable[[float], float]
"""Of the time, as a share of computing everything; in histories loaded while one is computed."""


def limit_of(
    *, least_wait_s: float = 0.0, has_pace: bool = True, answers: AnswerTimes | None = None
) -> LayerwiseLimit:
    return LayerwiseLimit(
        COMPUTE,
        TOKENS,
        byte_count=BYTES,
        step_tokens=100,
        has_pace=has_pace,
        least_wait_s=least_wait_s,
        answers=answers,
        now_s=50.0,
    )


def waited(pace: Pace, limit: LayerwiseLimit) -> tuple[float, float]:
    """The share of computing everything that passes, and that of the history which came."""
    passed, came, taken = 0.0, 0.0, 0
    while taken < SLICES:
        came = min(1.0, came + pace(passed) / LOOKS)
        passed += 1 / LOOKS
        now_s = 50.0 + passed * TOKENS
        limit.look(now_s, int(came * BYTES), was_waiting=True)
        new = int(came * SLICES) - taken
        limit.take(now_s, new / SLICES)
        taken += new
        if not new and not limit.is_waited_for:
            break
    return passed, came


@pytest.mark.parametrize("speed", [2, 5, 20])
def test_a_store_that_is_faster_than_computing_is_waited_for(speed: float) -> None:
    passed, came = waited(lambda _: speed, limit_of())
    assert came == 1.0
    assert passed == pytest.approx(1 / speed, abs=0.01)


@pytest.mark.parametrize("speed", [0.01, 0.1, 0.5, 0.9])
def test_a_store_that_is_slower_than_computing_is_left_at_once(speed: float) -> None:
    passed, came = waited(lambda _: speed, limit_of())
    assert came < 0.05
    assert passed <= STAKE_SHARE + 0.01


@pytest.mark.parametrize("at", [0.01, 0.05, 0.1, 0.19])
def test_a_store_that_falls_silent_costs_what_came_and_a_stake(at: float) -> None:
    passed, came = waited(lambda now: 5.0 if now < at else 0.0, limit_of())
    assert came == pytest.approx(5 * at, abs=0.01)
    assert at < passed <= at + STAKE_SHARE + 0.005


def test_what_came_fast_is_no_reserve_for_a_silence() -> None:
    """As it is where tokens come whole: each layer is worth nothing without the last one."""
    passed, _ = waited(lambda now: 100.0 if now < 0.009 else 0.0, limit_of())
    assert passed <= 0.009 + STAKE_SHARE + 0.005


def test_a_store_without_a_word_is_left_after_the_blind_share() -> None:
    assert waited(lambda _: 0.0, limit_of())[0] == pytest.approx(BLIND_SHARE, abs=0.001)


def test_of_encoded_states_no_pace_is_known() -> None:
    passed, _ = waited(lambda _: 0.0, limit_of(has_pace=False))
    assert passed == pytest.approx(STAKE_SHARE, abs=0.001)
    slow, came = waited(lambda _: 0.9, limit_of(has_pace=False))
    assert came > 0.05
    assert slow > STAKE_SHARE


def test_the_least_wait_is_waited_in_any_case() -> None:
    passed, _ = waited(lambda _: 0.0, limit_of(least_wait_s=0.1 * TOKENS))
    assert passed == pytest.approx(0.1, abs=0.001)


def test_computing_spends_nothing() -> None:
    limit = limit_of()
    for number in range(1, 100):
        limit.look(50.0 + TOKENS * number, 0, was_waiting=False)
        assert limit.is_waited_for
    limit.look(50.0 + TOKENS * 100, 0, was_waiting=True)
    assert not limit.is_waited_for


def test_taking_layers_spends_the_stake() -> None:
    limit = limit_of()
    limit.look(51.0, BYTES, was_waiting=False)
    limit.take(51.0 + 2 * STAKE_SHARE * TOKENS, 0.0)
    assert not limit.is_waited_for


def test_it_is_looked_at_again_before_the_answer_may_change() -> None:
    limit = limit_of()
    assert 0 < limit.look_s <= BLIND_SHARE * TOKENS


def answered(pace: Pace, answers: AnswerTimes) -> tuple[float, float]:
    limit = limit_of(answers=answers)
    passed = waited(pace, limit)
    limit.end()
    return passed


def test_a_window_was_given_up_before_the_store_answered_as_slowly_as_always() -> None:
    late: Pace = lambda passed: 5.0 if passed > 0.03 else 0.0  # noqa: E731
    answers = AnswerTimes()
    assert answered(late, answers)[1] == 0.0
    answers.add(0.03 * TOKENS)
    passed, came = answered(late, answers)
    assert came == 1.0
    assert passed == pytest.approx(0.03 + 1 / 5, abs=0.01)


def test_a_first_answer_that_came_late_was_taken_for_the_pace() -> None:
    """Little has come when the least wait is over, because the store only just began."""
    begins: Pace = lambda passed: 5.0 if passed > 0.02 else 0.0  # noqa: E731
    answers = AnswerTimes()
    answers.add(0.02 * TOKENS)
    assert answered(begins, answers)[1] == 1.0


def test_a_wait_beyond_the_stake_is_no_row_of_looks_without_a_sleep() -> None:
    answers = AnswerTimes()
    answers.add(0.05 * TOKENS)
    limit = limit_of(answers=answers)
    limit.look(50.0 + 0.06 * TOKENS, 0, was_waiting=True)
    assert limit.is_waited_for
    assert limit.look_s == pytest.approx(0.04 * TOKENS)


def test_a_silent_store_costs_the_longer_wait_once() -> None:
    answers = AnswerTimes()
    answers.add(1.0 * TOKENS)
    first, second = (answered(lambda _: 0.0, answers)[0] for _ in range(2))
    assert first == pytest.approx(ANSWER_SHARE, abs=0.001)
    assert second == pytest.approx(BLIND_SHARE, abs=0.001)


@pytest.mark.parametrize("at", [0.005, 0.02, 0.08])
def test_a_silence_after_the_first_bytes_cost_the_longer_wait(at: float) -> None:
    """Bug: each time, for as long as the slow answer was remembered."""
    answers = AnswerTimes()
    answers.add(0.05 * TOKENS)
    passed, _ = answered(lambda passed: 5.0 if at - 0.001 < passed < at else 0.0, answers)
    assert passed <= at + STAKE_SHARE + 0.005
    assert answers.wait_s(math.inf) == 0.0


def test_a_store_that_answered_late_was_given_up_for_what_the_wait_had_cost() -> None:
    answers = AnswerTimes()
    answers.add(0.09 * TOKENS)
    passed, came = answered(lambda passed: 5.0 if passed > 0.09 else 0.0, answers)
    assert came == 1.0
    assert passed == pytest.approx(0.09 + 1 / 5, abs=0.01)


def test_an_answer_is_learnt_only_from_a_load_that_was_waited_for() -> None:
    answers = AnswerTimes()
    limit = limit_of(answers=answers)
    limit.look(51.0, 0, was_waiting=True)
    limit.look(55.0, BYTES, was_waiting=False)
    limit.end()
    assert answers.wait_s(math.inf) == 0.0
    limit = limit_of(answers=answers)
    limit.look(51.0, 0, was_waiting=True)
    limit.look(55.0, 0, was_waiting=False)
    limit.look(57.0, BYTES, was_waiting=True)
    assert answers.wait_s(math.inf) == ANSWER_MARGIN * 3.0


def test_an_end_that_comes_again_forgets_no_later_answer() -> None:
    answers = AnswerTimes()
    limit = limit_of(answers=answers)
    limit.end()
    answers.add(3.0)
    limit.end()
    assert answers.wait_s(math.inf) == ANSWER_MARGIN * 3.0
