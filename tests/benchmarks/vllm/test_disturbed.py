"""Cells beside other work, from samples that are known."""

import pytest

from benchmarks.cake.traces import ComputeTrace
from benchmarks.vllm.disturbed import (
    FIGURES,
    QUICK,
    best_s,
    name_of,
    over_oracle,
    series,
    trace_of,
)
from benchmarks.vllm.restore import Samples

PROMPT_TOKENS = 64 * 8 + 4
EVEN = ComputeTrace((1.0,), (PROMPT_TOKENS,))
"""Every token takes as long as any other."""


def samples() -> Samples:
    found: Samples = {}
    for share in QUICK.shares:
        name = name_of(share)
        found[f"{name}_computed"] = (5.16, 5.16, 10.32)
        found[f"{name}_loaded"] = (5.16, 0.516, 10.32)
        found[f"{name}_both"] = (2.6, 1.0, 10.5)
    return found


def test_the_trace_has_several_lengths_of_the_prompt() -> None:
    trace = trace_of(lambda count: count**2 / 1e6, 400)
    assert trace.positions == (100, 200, 300, 400)
    assert trace.at_s(400) == pytest.approx(0.16)


def test_the_best_meeting_is_in_the_middle_where_both_sides_are_as_fast() -> None:
    # Four chunks are computed in 2.56 s while the others are loaded; then four tokens follow.
    best = best_s(EVEN, computed_s=5.16, loaded_s=5.16)
    assert best == pytest.approx(4 * 0.64 + 0.04)


def test_no_meeting_is_better_than_a_side_that_is_far_faster() -> None:
    assert best_s(EVEN, computed_s=5.16, loaded_s=1e6) == pytest.approx(5.16)
    assert best_s(EVEN, computed_s=5.16, loaded_s=0.05) == pytest.approx(0.05)


def test_a_later_token_costs_more_so_that_more_chunks_are_computed() -> None:
    rising = ComputeTrace((0.25, 1.0), (PROMPT_TOKENS // 2, PROMPT_TOKENS))
    even = best_s(EVEN, computed_s=5.16, loaded_s=5.16)
    assert best_s(rising, computed_s=5.16, loaded_s=5.16) < even


def test_each_round_has_its_own_oracle() -> None:
    found = over_oracle(samples(), name_of(1.0), EVEN)
    assert found[0] == pytest.approx(1.0)
    assert found[2] == pytest.approx(10.5 / 5.2)


def test_figures_are_those_that_are_promised() -> None:
    found = series(samples(), QUICK, EVEN, is_equal=True)
    figures = {one.key: one.value for one in found if one.is_figure}
    assert tuple(figures) == FIGURES
    assert figures["disturbed_cake_vs_best_max"] == pytest.approx(1.0 / 0.516)
    oracle = sorted(over_oracle(samples(), name_of(1.0), EVEN))
    assert figures["disturbed_cake_vs_oracle_max"] == pytest.approx(oracle[1])
    keys = {one.key for one in found}
    assert {"disturbed_x1_cake_vs_oracle", "disturbed_x8_both_s"} <= keys
