"""Ten tokens a chunk and a step; a token takes 1 s, a chunk comes every 10 s."""

from collections.abc import Sequence

import pytest

from engine_adapters.restore.cake import plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.decision import Action, Decision
from engine_adapters.restore.pointers import Pointers
from engine_adapters.restore.ranges import History, TokenRange
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.recent import NO_DOUBT
from engine_adapters.restore.source import Source

COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
LOAD = LoadCost(chunk_s=10.0)


def pointers(
    *, chunk_count: int = 10, new_tokens: int = 1, load: LoadCost = LOAD, rates: Rates | None = None
) -> Pointers:
    history = History(
        prompt_tokens=10 * chunk_count + new_tokens,
        chunk_tokens=10,
        is_stored=(True,) * chunk_count,
    )
    plan = plan_cake(history, COMPUTE, {Source.KV: load}, token_budget=10)
    rates = rates or Rates(load, token_budget=10)
    return Pointers(history, plan, COMPUTE, rates=rates, now_s=100.0)


def decision(action: Action, first: int, stop: int) -> Decision:
    return Decision(action, TokenRange(first, stop))


def compute(running: Pointers, duration_s: float = 10.0) -> None:
    running.begin_step(10)
    running.end_step(10, duration_s)


def bring(running: Pointers, now_s: float, chunks: list[int], lost: Sequence[int] = ()) -> None:
    """They arrive and are taken."""
    running.observe(now_s, arrived=chunks, lost=lost)
    running.take(chunks)


def test_it_computes_from_the_front_until_it_meets_what_was_loaded() -> None:
    running = pointers()
    for step in range(5):
        assert running.decide(10) == decision(Action.COMPUTE, 10 * step, 10 * step + 10)
        compute(running)
        bring(running, 100.0 + 10 * (step + 1), [9 - step])
    assert running.decide(10) == decision(Action.JUMP, 50, 100)
    running.jump(50)
    assert running.position == 100
    assert running.decide(10) == decision(Action.COMPUTE, 100, 101)
    running.begin_step(1)
    running.end_step(1, 1.0)
    assert running.decide(10) == decision(Action.DONE, 101, 101)


def test_the_step_before_the_meeting_is_shorter() -> None:
    running = pointers(chunk_count=4)
    assert running.decide(100) == decision(Action.COMPUTE, 0, 20)


@pytest.mark.parametrize(("doubt", "stop"), [(NO_DOUBT, 20), (2.0, 10)])
def test_a_step_is_no_longer_than_loading_alone_if_it_is_slower_than_known(
    doubt: float, stop: int
) -> None:
    load = LoadCost(chunk_s=9.0)
    rates = Rates(load, token_budget=10, doubt=doubt)
    running = pointers(chunk_count=4, load=load, rates=rates)
    assert running.decide(100) == decision(Action.COMPUTE, 0, stop)


def test_the_reader_is_told_about_whole_chunks_of_the_step_that_runs() -> None:
    running = pointers(new_tokens=5)
    assert running.reached_chunks == 0
    running.begin_step(19)
    assert running.reached_chunks == 1
    running.end_step(19, 19.0)
    running.begin_step(1)
    assert running.reached_chunks == 2
    running.end_step(1, 1.0)
    running.jump(75)
    assert running.reached_chunks == 9
    running.begin_step(5)
    assert running.reached_chunks == 10


def test_it_waits_when_the_reader_is_faster_and_uses_what_is_there() -> None:
    running = pointers(load=LoadCost(chunk_s=1.0), chunk_count=3)
    assert running.decide(10) == decision(Action.WAIT, 0, 0)
    bring(running, 103.0, [2, 1])
    assert running.decide(10) == decision(Action.WAIT, 0, 0)
    bring(running, 103.5, [0])
    assert running.decide(10) == decision(Action.JUMP, 0, 30)


def test_what_has_arrived_and_is_not_taken_is_waited_for_and_not_jumped_over() -> None:
    running = pointers(load=LoadCost(chunk_s=1.0), chunk_count=3)
    running.observe(106.0, arrived=[2, 1, 0])
    running.take([2, 1])
    assert running.decide(10) == decision(Action.WAIT, 0, 0)
    running.take([0])
    assert running.decide(10) == decision(Action.JUMP, 0, 30)


def test_what_has_arrived_and_is_lost_before_it_is_taken_is_computed() -> None:
    running = pointers(load=LoadCost(chunk_s=1.0), chunk_count=3)
    running.observe(103.0, arrived=[2, 1, 0])
    running.observe(103.5, lost=[2, 1, 0])
    assert running.decide(10) == decision(Action.COMPUTE, 0, 10)


def test_chunks_that_came_out_of_turn_are_jumped_over_one_by_one() -> None:
    running = pointers(load=LoadCost(chunk_s=1.0), chunk_count=3)
    bring(running, 101.0, [0])
    assert running.decide(10) == decision(Action.JUMP, 0, 10)


def test_what_came_out_of_turn_is_not_computed_either() -> None:
    running = pointers(load=LoadCost(chunk_s=15.0), chunk_count=3)
    assert running.decide(10).action is Action.COMPUTE
    bring(running, 115.0, [0])
    assert running.decide(10) == decision(Action.JUMP, 0, 10)
    running.jump(10)
    assert running.decide(10).action is Action.COMPUTE


def test_without_budget_nothing_is_computed() -> None:
    running = pointers()
    assert running.decide(0) == decision(Action.WAIT, 0, 0)


def test_a_lost_chunk_is_computed() -> None:
    running = pointers(load=LoadCost(chunk_s=1.0), chunk_count=3)
    bring(running, 103.0, [2, 0], lost=[1])
    assert running.decide(10) == decision(Action.JUMP, 0, 10)
    running.jump(10)
    assert running.decide(10) == decision(Action.COMPUTE, 10, 20)
    compute(running)
    assert running.decide(10) == decision(Action.JUMP, 20, 30)


def test_a_chunk_that_is_half_computed_is_loaded_from_there_on() -> None:
    running = pointers(load=LoadCost(chunk_s=3.0), chunk_count=1)
    running.begin_step(4)
    running.end_step(4, 4.0)
    bring(running, 104.0, [0])
    assert running.decide(10) == decision(Action.JUMP, 4, 10)


def test_a_reader_is_as_slow_as_it_is_silent() -> None:
    running = pointers(load=LoadCost(chunk_s=5.0), chunk_count=2)
    running.observe(106.0)
    assert running.decide(10).action is Action.WAIT
    running.observe(107.6)
    assert running.decide(10) == decision(Action.COMPUTE, 0, 10)


def test_the_latency_is_no_silence() -> None:
    running = pointers(load=LoadCost(chunk_s=2.0, latency_s=3.0), chunk_count=2)
    running.observe(105.9)
    assert running.decide(10).action is Action.WAIT
    bring(running, 107.0, [1])
    assert running.decide(10).action is Action.WAIT


def test_an_early_arrival_counts_as_no_time() -> None:
    rates = Rates(LOAD, token_budget=10)
    running = pointers(load=LoadCost(chunk_s=10.0, latency_s=50.0), rates=rates)
    bring(running, 101.0, [9])
    assert rates.chunk_s.value == pytest.approx(10 * 4 / 5)


def test_arrivals_between_two_looks_bound_the_time_between_two_chunks() -> None:
    """Three chunks in 24 s: between 6 and 8 s each; the nearest to what was expected counts."""
    for expected_s, learned_s in ((2.0, 6.0), (7.0, 7.0), (10.0, 8.0)):
        load = LoadCost(chunk_s=expected_s)
        rates = Rates(load, token_budget=10)
        running = pointers(load=load, rates=rates)
        bring(running, 124.0, [9, 8, 7])
        assert rates.chunk_s.value == pytest.approx((4 * expected_s + 3 * learned_s) / 7)


def test_slow_steps_shift_the_meeting() -> None:
    rates = Rates(LOAD, token_budget=10)
    running = pointers(rates=rates)
    for _ in range(3):
        compute(running, duration_s=40.0)
    assert rates.slowness.value > 3
    bring(running, 220.0, [9, 8, 7, 6, 5, 4])
    assert running.decide(10).action is Action.WAIT


def test_a_smaller_budget_is_remembered_as_more_steps() -> None:
    rates = Rates(LOAD, token_budget=10)
    running = pointers(rates=rates)
    for _ in range(30):
        running.decide(2)
    assert rates.step_tokens.value == pytest.approx(2, rel=0.02)


def test_a_step_that_others_filled_seemed_to_be_slow() -> None:
    """Bug: what the others' tokens took counted as slowness of this request's.

    Then nothing was computed after a burst, which left no more than a token of each step.
    """
    rates = Rates(LOAD, token_budget=10)
    running = pointers(rates=rates)
    for _ in range(3):
        running.begin_step(1)
        running.end_step(1, 10.0, others_count=9)
    assert rates.slowness.value == pytest.approx(1)
    bring(running, 130.0, [9, 8, 7])
    assert running.decide(10).action is Action.COMPUTE


def test_steps_that_others_share_take_what_all_their_tokens_take() -> None:
    """Bug: a tenth of a step was expected to take a tenth of its time, and was never waited for.

    The last chunk but one comes in 10 s: computing it takes as long alone, and 10 steps beside
    others.
    """
    rates = Rates(LOAD, token_budget=10)
    for _ in range(50):
        rates.step_tokens.add(1)
    assert rates.others_tokens == pytest.approx(9, rel=0.02)
    running = pointers(chunk_count=2, rates=rates)
    bring(running, 110.0, [1])
    assert running.decide(1).action is Action.WAIT
    assert pointers(chunk_count=1).decide(10).action is Action.COMPUTE


def test_steps_that_others_fill_do_not_shrink_those_that_they_leave() -> None:
    rates = Rates(LOAD, token_budget=10)
    running = pointers(rates=rates)
    for _ in range(30):
        assert running.decide(0).action is Action.WAIT
    assert rates.step_tokens.value == 10


def test_an_engine_that_learned_knows_it_for_the_next_request() -> None:
    rates = Rates(LOAD, token_budget=10)
    first = pointers(rates=rates)
    bring(first, 109.0, [9, 8, 7, 6, 5, 4, 3, 2, 1])
    assert pointers(chunk_count=3, rates=rates).decide(10).action is Action.WAIT
    assert pointers(chunk_count=3).decide(10).action is Action.COMPUTE


def test_a_prompt_without_stored_chunks_is_computed() -> None:
    history = History(prompt_tokens=7, chunk_tokens=10, is_stored=())
    plan = plan_cake(history, COMPUTE, {}, token_budget=10)
    running = Pointers(history, plan, COMPUTE, rates=Rates(None, token_budget=10), now_s=0.0)
    assert running.decide(10) == decision(Action.COMPUTE, 0, 7)
    running.begin_step(7)
    assert running.reached_chunks == 0


def test_it_loads_until_nothing_ahead_can_come() -> None:
    running = pointers(chunk_count=3)
    assert running.is_loading
    running.observe(110.0, lost=[0, 1])
    assert running.is_loading
    bring(running, 120.0, [2])
    compute(running)
    compute(running)
    assert running.is_loading
    running.jump(10)
    assert not running.is_loading


def test_without_a_plan_to_load_it_never_loads() -> None:
    assert not pointers(load=LoadCost(chunk_s=1e6)).is_loading


def test_what_taking_loaded_tokens_takes_is_measured_too() -> None:
    """Tokens that take as long to project as to compute are not worth waiting for."""
    rates = Rates(LOAD, token_budget=10)
    assert pointers(rates=rates).decide(10).action is Action.COMPUTE
    fast = Rates(LoadCost(chunk_s=0.1), token_budget=10)
    assert pointers(load=LoadCost(chunk_s=0.1), rates=fast).decide(10).action is Action.WAIT
    fast.project_s.add(2.0 * 512, units=512)
    assert pointers(load=LoadCost(chunk_s=0.1), rates=fast).decide(10).action is Action.COMPUTE


@pytest.mark.parametrize(("doubt", "stop"), [(NO_DOUBT, 101), (2.0, 80)])
def test_what_had_been_loaded_was_computed_as_well_to_save_a_step(doubt: float, stop: int) -> None:
    """A profile of a bad moment said that a step takes as long as 30 tokens.

    Computing 10 tokens and then the last one seems to take 71 s, all 31 in one step 61 s. So
    nothing was jumped over, and both sides together took as long as computing alone.
    """
    history = History(prompt_tokens=101, chunk_tokens=10, is_stored=(True,) * 10)
    believed = ComputeCost(step_s=30.0, token_s=1.0, attention_s=0.0)
    load = LoadCost(chunk_s=100.0)
    running = Pointers(
        history,
        plan_cake(history, believed, {Source.KV: load}, token_budget=70),
        believed,
        rates=Rates(load, token_budget=70, doubt=doubt),
        now_s=0.0,
    )
    running.begin_step(70)
    running.end_step(70, 100.0)
    bring(running, 200.0, [9, 8])
    assert running.decide(70) == decision(Action.COMPUTE, 70, stop)


def test_tokens_that_were_computed_before_there_was_a_plan_are_behind_the_pointer() -> None:
    history = History(prompt_tokens=101, chunk_tokens=10, is_stored=(True,) * 10)
    plan = plan_cake(history, COMPUTE, {Source.KV: LOAD}, token_budget=10)
    running = Pointers(
        history, plan, COMPUTE, rates=Rates(LOAD, token_budget=10), now_s=0.0, position=30
    )
    assert running.position == 30
    assert running.reached_chunks == 3
    assert running.decide(10) == decision(Action.COMPUTE, 30, 40)
