"""The whole planner under a virtual clock."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.testing.oracle import best_meeting
from engine_adapters.restore.testing.virtual_run import Outcome, VirtualMachine
from tests.engine_adapters.restore.drawn_restorations import Setting, histories, settings_of

EXACT = 1 + 1e-9
EXAMPLES = 100

no_gaps = settings_of(histories(with_gaps=False, whole=True))
any_gaps = settings_of(histories())
few_chunks = settings_of(histories(chunks_max=6))


def check_covered(setting: Setting, outcome: Outcome) -> None:
    """Every token once, and only stored ones are loaded."""
    parts = sorted(outcome.computed + outcome.loaded)
    edges = [0, *(tokens.stop for tokens in parts)]
    assert [tokens.first for tokens in parts] == edges[:-1]
    assert edges[-1] == setting.history.prompt_tokens
    for tokens in outcome.loaded:
        chunks = range(
            tokens.first // setting.history.chunk_tokens,
            -(-tokens.stop // setting.history.chunk_tokens),
        )
        assert all(setting.history.is_stored[chunk] for chunk in chunks)


@settings(max_examples=EXAMPLES, deadline=None)
@given(no_gaps)
def test_with_known_costs_the_meeting_is_the_oracles(setting: Setting) -> None:
    outcome = setting.restored()
    check_covered(setting, outcome)
    assert outcome.duration_s <= setting.oracle_s * EXACT
    assert outcome.duration_s <= min(setting.compute_alone_s, setting.load_alone_s) * EXACT


@settings(max_examples=EXAMPLES, deadline=None)
@given(few_chunks)
def test_with_gaps_it_is_nearly_the_best_set_of_chunks(setting: Setting) -> None:
    outcome = setting.restored()
    check_covered(setting, outcome)
    assert outcome.duration_s <= setting.best_static_s + setting.granularity_s


@settings(max_examples=EXAMPLES, deadline=None)
@given(any_gaps)
def test_with_gaps_it_is_never_slower_than_one_side_alone(setting: Setting) -> None:
    outcome = setting.restored()
    check_covered(setting, outcome)
    alone_s = min(setting.compute_alone_s, setting.load_alone_s)
    assert outcome.duration_s <= alone_s + setting.granularity_s


@settings(max_examples=EXAMPLES, deadline=None)
@given(no_gaps, st.floats(0.5, 2))
def test_a_wrong_belief_costs_no_more_than_the_step_that_tells(
    setting: Setting, misled: float
) -> None:
    """The last step is the longest, so no step says more, and a silent reader no sooner."""
    outcome = setting.restored(believed=setting.compute.scaled(misled))
    check_covered(setting, outcome)
    last = max(0, setting.history.prompt_tokens - setting.token_budget)
    step_s = setting.compute.compute_s(last, setting.history.prompt_tokens, setting.token_budget)
    granularity_s = step_s + 2 * setting.load.chunk_s + setting.load.latency_s
    alone_s = min(setting.compute_alone_s, setting.load_alone_s)
    assert outcome.duration_s <= alone_s + granularity_s


@settings(max_examples=EXAMPLES, deadline=None)
@given(any_gaps, st.integers(0, 2**32))
def test_fluctuating_rates_and_lost_chunks_leave_no_token_out(setting: Setting, seed: int) -> None:
    generator = random.Random(seed)
    usual = setting.machine()
    lost = {chunk for chunk in range(setting.history.chunk_count) if generator.random() < 0.2}

    def chunk_s(chunk: int, now_s: float) -> float:
        return math.inf if chunk in lost else generator.uniform(0, 3) * setting.load.chunk_s

    machine = replace(
        usual,
        step_s=lambda first, count, now_s: (
            generator.uniform(0.5, 2) * usual.step_s(first, max(1, count), now_s)
        ),
        chunk_s=chunk_s,
        budget=lambda _: generator.randint(0, setting.token_budget),
    )
    outcome = setting.restored(machine)
    check_covered(setting, outcome)
    for tokens in outcome.loaded:
        chunks = range(
            tokens.first // setting.history.chunk_tokens,
            -(-tokens.stop // setting.history.chunk_tokens),
        )
        assert lost.isdisjoint(chunks)


def test_a_reader_that_falls_silent_is_not_waited_for() -> None:
    setting = long_setting(chunk_s=0.001)
    machine = replace(setting.machine(), chunk_s=lambda chunk, _: 0.001 if chunk > 40 else 1e6)
    outcome = setting.restored(machine)
    check_covered(setting, outcome)
    assert outcome.loaded == [(41 * 128, 64 * 128)]
    assert outcome.duration_s < 1.2 * setting.compute.compute_s(0, 41 * 128, 512)


def test_fluctuation_stays_near_the_oracle_of_its_trace() -> None:
    """Section 5.7: the budget uniform in 0 to 512 and the bandwidth, both drawn each 0.1 s."""
    ratios = sorted(fluctuation_ratio(seed) for seed in range(20))
    assert ratios[10] < 1.05
    assert ratios[-1] < 1.15


def test_hidden_states_keep_the_compute_side_busy_too() -> None:
    setting = long_setting(chunk_s=0.004)
    projected = replace(setting, load=replace(setting.load, project_s=3e-5))
    plain, outcome = setting.restored(), projected.restored()
    check_covered(projected, outcome)
    assert plain.duration_s < outcome.duration_s
    assert outcome.duration_s < projected.plan().duration_s + projected.granularity_s
    assert sum(tokens.token_count for tokens in outcome.computed) < sum(
        tokens.token_count for tokens in plain.computed
    )


def long_setting(*, chunk_s: float) -> Setting:
    return Setting(
        history=History(prompt_tokens=8193, chunk_tokens=128, is_stored=(True,) * 64),
        compute=ComputeCost(step_s=0.005, token_s=1e-4, attention_s=1e-8),
        load=LoadCost(chunk_s=chunk_s),
        token_budget=512,
    )


def fluctuation_ratio(seed: int) -> float:
    """Duration over the least of any meeting point under the same trace."""
    generator = random.Random(seed)
    budgets = [generator.randint(0, 512) for _ in range(1000)]
    slowness = [1 / generator.uniform(0.01, 2) for _ in range(1000)]
    setting = long_setting(chunk_s=0.03)
    full_s = setting.compute.compute_s(0, 512, 512)

    def at(values: list[float] | list[int], now_s: float) -> float:
        return values[int(now_s * 10)]

    machine = VirtualMachine(
        step_s=lambda first, count, _: full_s + first * count * 1e-8,
        chunk_s=lambda _, now_s: 0.03 * at(slowness, now_s),
        budget=lambda now_s: int(at(budgets, now_s)),
    )
    believed = ComputeCost(step_s=full_s, token_s=0.0, attention_s=1e-8)
    outcome = replace(setting, token_budget=256).restored(machine, believed=believed)
    check_covered(setting, outcome)
    return outcome.duration_s / oracle_of_trace(setting.history, machine, full_s)


def oracle_of_trace(history: History, machine: VirtualMachine, last_s: float) -> float:
    now_s, position = 0.0, 0
    computed_s = [0.0]
    while len(computed_s) <= history.chunk_count:
        count = machine.budget(now_s)
        step_s = machine.step_s(position, count, now_s)
        while len(computed_s) <= history.chunk_count and (
            history.chunk_first(len(computed_s)) <= position + count
        ):
            share = (history.chunk_first(len(computed_s)) - position) / count
            computed_s.append(now_s + share * step_s)
        now_s, position = now_s + step_s, position + count
    loaded_s = [0.0]
    for _ in range(history.chunk_count):
        loaded_s.append(loaded_s[-1] + machine.chunk_s(0, loaded_s[-1]))
    return best_meeting(computed_s, loaded_s).duration_s + last_s


@pytest.mark.parametrize("chunk_s", [1e-6, 100.0])
def test_where_one_side_cannot_help_the_other_works_alone(chunk_s: float) -> None:
    setting = long_setting(chunk_s=chunk_s)
    outcome = setting.restored()
    if chunk_s < 1:
        assert outcome.computed == [(8192, 8193)]
    else:
        assert outcome.read_chunks == 0
        assert setting.plan().load_order == ()
        assert outcome.duration_s == pytest.approx(setting.compute_alone_s)
