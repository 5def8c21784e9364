"""What was measured before is wrong, or speeds change while a history is restored."""

import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine_adapters.restore.cake import plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.rates import Rates
from engine_adapters.restore.source import Source
from engine_adapters.restore.testing.changing_speed import ChangingSpeed
from engine_adapters.restore.testing.oracle import best_meeting
from engine_adapters.restore.testing.virtual_run import Outcome, VirtualMachine, restore

HISTORY = History(prompt_tokens=80 * 64 + 50, chunk_tokens=64, is_stored=(True,) * 80)
COMPUTE = ComputeCost(step_s=0.02, token_s=7e-4, attention_s=1e-7)
BUDGET = 512
ALONE_S = COMPUTE.compute_s(0, HISTORY.prompt_tokens, BUDGET)
DRAWN = 30
WRONG = 4.0
"""Beliefs are at most so many times too high or too low."""

Speeds = Callable[[random.Random, float], tuple[ChangingSpeed, ChangingSpeed]]


@dataclass(frozen=True, slots=True)
class Run:
    """Of one restoration; seconds."""

    outcome: Outcome
    oracle_s: float
    better_alone_s: float

    @property
    def over_oracle(self) -> float:
        return self.outcome.duration_s / self.oracle_s

    @property
    def over_better(self) -> float:
        return self.outcome.duration_s / self.better_alone_s


def run(
    load_over_compute: float,
    computing: ChangingSpeed,
    loading: ChangingSpeed,
    *,
    compute_belief: float = 1.0,
    load_belief: float = 1.0,
    doubt: float = 2.0,
) -> Run:
    """Loading the history alone takes so many times as long as computing it."""
    chunk_s = load_over_compute * ALONE_S / HISTORY.chunk_count
    believed = COMPUTE.scaled(compute_belief)
    load = LoadCost(chunk_s=load_belief * chunk_s)

    def step_s(first: int, count: int, now_s: float) -> float:
        return computing.duration_s(COMPUTE.compute_s(first, first + count, BUDGET), now_s)

    machine = VirtualMachine(
        step_s=step_s,
        chunk_s=lambda _, now_s: loading.duration_s(chunk_s, now_s),
        budget=lambda _: BUDGET,
    )
    outcome = restore(
        HISTORY,
        plan_cake(HISTORY, believed, {Source.KV: load}, token_budget=BUDGET),
        believed,
        machine,
        rates=Rates(load, token_budget=BUDGET, doubt=doubt),
    )
    firsts = [HISTORY.chunk_first(chunk) for chunk in range(HISTORY.chunk_count + 1)]
    computed_s = [
        computing.duration_s(COMPUTE.compute_s(0, first, BUDGET), 0.0) for first in firsts
    ]
    loaded_s = [0.0]
    for _ in range(HISTORY.chunk_count):
        loaded_s.append(loaded_s[-1] + loading.duration_s(chunk_s, loaded_s[-1]))

    def end_s(history_s: float) -> float:
        return history_s + step_s(firsts[-1], HISTORY.prompt_tokens - firsts[-1], history_s)

    computed_alone_s = computing.duration_s(ALONE_S, 0.0)
    return Run(
        outcome,
        min(computed_alone_s, end_s(best_meeting(computed_s, loaded_s).duration_s)),
        min(computed_alone_s, end_s(loaded_s[-1])),
    )


def steady(_: random.Random, __: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    return ChangingSpeed.steady(), ChangingSpeed.steady()


def computing_halves(draw: random.Random, span_s: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    return ChangingSpeed.changed(draw.uniform(0, span_s), 0.5), ChangingSpeed.steady()


def loading_halves(draw: random.Random, span_s: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    return ChangingSpeed.steady(), ChangingSpeed.changed(draw.uniform(0, span_s), 0.5)


def computing_doubles(draw: random.Random, span_s: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    return ChangingSpeed.changed(draw.uniform(0, span_s), 2.0), ChangingSpeed.steady()


def loading_doubles(draw: random.Random, span_s: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    return ChangingSpeed.steady(), ChangingSpeed.changed(draw.uniform(0, span_s), 2.0)


def other_work(draw: random.Random, _: float) -> tuple[ChangingSpeed, ChangingSpeed]:
    """A process that takes one of two cores half of the time, from both sides."""
    computing, loading = (
        ChangingSpeed.bursts(draw, shortest_s=0.1, longest_s=1.0, speed=0.5, until_s=60.0)
        for _ in range(2)
    )
    return computing, loading


CHANGES = (
    steady,
    computing_halves,
    loading_halves,
    computing_doubles,
    loading_doubles,
    other_work,
)


def drawn_runs(load_over_compute: float, speeds: Speeds) -> list[Run]:
    draw = random.Random(f"{load_over_compute} {speeds.__name__}")
    span_s = ALONE_S * min(1.0, load_over_compute)
    return [
        run(
            load_over_compute,
            *speeds(draw, span_s),
            compute_belief=WRONG ** draw.uniform(-1, 1),
            load_belief=WRONG ** draw.uniform(-1, 1),
        )
        for _ in range(DRAWN)
    ]


@pytest.mark.parametrize("speeds", CHANGES)
@pytest.mark.parametrize("load_over_compute", [1 / 4, 1 / 2, 1, 2, 4])
def test_a_wrong_belief_and_a_changing_speed_cost_little(
    load_over_compute: float, speeds: Speeds
) -> None:
    """Never slower than the better side alone, and near the best that could be known later."""
    runs = drawn_runs(load_over_compute, speeds)
    assert max(each.over_better for each in runs) <= 1.02
    assert statistics.median(each.over_oracle for each in runs) <= 1.05


@pytest.mark.parametrize("speeds", CHANGES)
def test_where_loading_is_far_faster_a_step_is_seldom_regretted(speeds: Speeds) -> None:
    """All is loaded in less than two full steps, and nobody knew how long the first would take."""
    runs = drawn_runs(1 / 8, speeds)
    assert sum(each.over_better > 1.02 for each in runs) <= 0.15 * DRAWN
    assert max(each.over_better for each in runs) <= 1.2
    assert statistics.median(each.over_oracle for each in runs) <= 1.05


def test_a_step_outlasted_all_that_was_loaded_meanwhile() -> None:
    """Computing halves as a full step begins, which was as long as all loads that were left."""
    found = run(1 / 8, ChangingSpeed.changed(0.01, 0.5), ChangingSpeed.steady())
    assert found.over_better <= 1.02


@pytest.mark.parametrize("compute_belief", [1 / WRONG, 1.0, WRONG])
@pytest.mark.parametrize("load_belief", [1 / WRONG, 1.0, WRONG])
@pytest.mark.parametrize("load_over_compute", [1 / 4, 1, 4])
def test_a_wrong_belief_left_one_side_idle(
    load_over_compute: float, load_belief: float, compute_belief: float
) -> None:
    """What seemed hopeless was not even tried: so it stayed."""
    found = run(
        load_over_compute,
        ChangingSpeed.steady(),
        ChangingSpeed.steady(),
        compute_belief=compute_belief,
        load_belief=4 * load_belief,
    )
    assert found.over_oracle <= 1.1
    assert found.outcome.loaded
