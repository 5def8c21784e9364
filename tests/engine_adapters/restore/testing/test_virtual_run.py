"""What the planner makes of drawn costs is tested in tests/engine_adapters/restore."""

from dataclasses import replace

import pytest

from engine_adapters.restore.cake import CakePlan
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History, TokenRange
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.source import Source
from engine_adapters.restore.testing.virtual_run import VirtualMachine, restore

HISTORY = History(prompt_tokens=41, chunk_tokens=10, is_stored=(True,) * 4)
COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
LOAD = LoadCost(chunk_s=10.0)
PLAN = CakePlan(
    source=Source.KV, load=LOAD, load_order=(range(4),), meeting_token=20, duration_s=21.0
)
MACHINE = VirtualMachine(
    step_s=lambda first, count, now_s: max(1.0, count),
    chunk_s=lambda chunk, now_s: 10.0,
    budget=lambda now_s: 10,
)


def test_both_sides_work_until_they_meet() -> None:
    outcome = restore(HISTORY, PLAN, COMPUTE, MACHINE, rates=Rates(LOAD, token_budget=10))
    assert outcome.computed == [TokenRange(0, 10), TokenRange(10, 20), TokenRange(40, 41)]
    assert outcome.loaded == [TokenRange(20, 40)]
    assert outcome.duration_s == pytest.approx(21)
    assert outcome.read_chunks == 2
    assert (outcome.waited_s, outcome.rest_s) == (0.0, 1.0)


def test_only_the_wait_for_the_end_of_the_history_counts() -> None:
    """Chunk 1 has come at 26 s, chunk 0 was computed in 10 s; chunk 3 is a gap."""
    history = replace(HISTORY, is_stored=(True, True, True, False))
    plan = replace(PLAN, load_order=(range(1, 3),), meeting_token=10)
    machine = replace(MACHINE, chunk_s=lambda chunk, now_s: 13.0)
    load = LoadCost(chunk_s=6.0)
    outcome = restore(history, plan, COMPUTE, machine, rates=Rates(load, token_budget=10))
    assert outcome.computed[-2:] == [TokenRange(30, 40), TokenRange(40, 41)]
    assert (outcome.waited_s, outcome.rest_s) == (0.0, 1.0)
    late = replace(MACHINE, chunk_s=lambda chunk, now_s: 10.5)
    outcome = restore(HISTORY, PLAN, COMPUTE, late, rates=Rates(LOAD, token_budget=10))
    assert outcome.waited_s == pytest.approx(1)
    assert outcome.duration_s == pytest.approx(22)


def test_projection_takes_the_compute_sides_time() -> None:
    machine = replace(MACHINE, project_s=0.2)
    outcome = restore(HISTORY, PLAN, COMPUTE, machine, rates=Rates(LOAD, token_budget=10))
    assert outcome.duration_s == pytest.approx(21 + 2 * 2)


def test_steps_of_others_pass_without_budget() -> None:
    machine = replace(MACHINE, budget=lambda now_s: 10 if now_s >= 7 else 0)
    outcome = restore(HISTORY, PLAN, COMPUTE, machine, rates=Rates(LOAD, token_budget=10))
    assert outcome.computed[0].first == 0
    assert outcome.duration_s > 21


def test_a_planner_that_waits_for_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "engine_adapters.restore.pointers.compute_stop",
        lambda history, position, loadable, **_: position,
    )
    machine = replace(MACHINE, chunk_s=lambda chunk, now_s: float("inf"))
    with pytest.raises(RuntimeError, match="waits at token 0 for nothing"):
        restore(HISTORY, PLAN, COMPUTE, machine, rates=Rates(LOAD, token_budget=10))
