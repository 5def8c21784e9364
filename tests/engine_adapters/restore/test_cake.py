import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore.cake import load_order, plan_cake
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History
from engine_adapters.restore.source import Source
from tests.engine_adapters.restore.drawn_restorations import histories

COMPUTE = ComputeCost(step_s=0.0, token_s=0.1, attention_s=0.0)


def history(*is_stored: bool, new_tokens: int = 1) -> History:
    return History(
        prompt_tokens=10 * len(is_stored) + new_tokens, chunk_tokens=10, is_stored=is_stored
    )


WHOLE = history(*[True] * 10)


def test_they_meet_where_both_sides_end_together() -> None:
    plan = plan_cake(WHOLE, COMPUTE, {Source.KV: LoadCost(chunk_s=1.0)}, token_budget=10)
    assert plan.load_order == (range(10),)
    assert plan.meeting_token == 50
    assert plan.duration_s == pytest.approx(5.1)
    assert plan.source is Source.KV


def test_slow_decoding_lets_more_be_computed() -> None:
    """As with reads that are slower by as much."""
    free, slow = (
        plan_cake(
            WHOLE,
            COMPUTE,
            {Source.KV: LoadCost.of_bytes(10, bytes_per_s=10, decode_s=decode_s)},
            token_budget=10,
        )
        for decode_s in (0.5, 4.0)
    )
    assert (free.meeting_token, slow.meeting_token) == (50, 80)
    assert slow.duration_s == pytest.approx(8.1)


def test_the_faster_source_is_chosen_with_its_projection() -> None:
    loads = {
        Source.KV: LoadCost(chunk_s=1.0),
        Source.HIDDEN: LoadCost(chunk_s=0.5, project_s=0.01),
    }
    plan = plan_cake(WHOLE, COMPUTE, loads, token_budget=10)
    assert plan.source is Source.HIDDEN
    assert plan.load == loads[Source.HIDDEN]
    # 3 chunks computed in 3 s, 7 loaded in 3.5 s and projected in 0.7 s, the last one after.
    assert plan.meeting_token == 30
    assert plan.duration_s == pytest.approx(3.7 + 0.1)
    slow = loads | {Source.HIDDEN: LoadCost(chunk_s=0.5, project_s=1.0)}
    assert plan_cake(WHOLE, COMPUTE, slow, token_budget=10).source is Source.KV


def test_of_two_sources_that_cannot_help_the_larger_one_was_tried() -> None:
    loads = {Source.HIDDEN: LoadCost(chunk_s=200.0), Source.KV: LoadCost(chunk_s=100.0)}
    assert plan_cake(WHOLE, COMPUTE, loads, token_budget=10).source is Source.KV


def test_a_source_that_cannot_help_is_tried_or_dropped() -> None:
    """Computing all takes 10.1 s; in time for that a chunk might come that is believed late."""
    tried, dropped = (
        plan_cake(WHOLE, COMPUTE, {Source.KV: LoadCost(chunk_s=chunk_s)}, token_budget=10)
        for chunk_s in (323.0, 324.0)
    )
    assert (tried.load_order, tried.meeting_token) == ((range(10),), 90)
    assert (dropped.load_order, dropped.meeting_token) == ((), 101)
    assert dropped.source is Source.COMPUTE
    assert dropped.load is None
    assert tried.duration_s == dropped.duration_s == pytest.approx(10.1)


def test_without_sources_or_stored_chunks_all_is_computed() -> None:
    for chunks, loads in ((WHOLE, {}), (history(False), {Source.KV: LoadCost(chunk_s=0.1)})):
        plan = plan_cake(chunks, COMPUTE, loads, token_budget=10)
        assert plan.load_order == ()
        assert plan.meeting_token == chunks.prompt_tokens


def test_gaps_are_computed_while_the_rest_is_loaded() -> None:
    gap = history(True, True, False, False, True, True)
    plan = plan_cake(gap, COMPUTE, {Source.KV: LoadCost(chunk_s=0.5)}, token_budget=10)
    assert plan.load_order == (range(2), range(4, 6))
    assert plan.meeting_token == 0
    assert plan.duration_s == pytest.approx(2.1)


def test_the_run_that_is_met_first_leads() -> None:
    gaps = history(True, True, False, True, True, False, True, True)
    assert load_order(gaps, 4) == (range(4, 5), range(6, 8), range(3, 4), range(2))
    assert load_order(gaps, 6) == (range(6, 8), range(3, 5), range(2))
    assert load_order(gaps, 0) == (range(2), range(3, 5), range(6, 8))


def test_few_tokens_of_a_short_chunk_are_computed_with_the_new_ones() -> None:
    short = History(prompt_tokens=24, chunk_tokens=10, is_stored=(True,) * 3)
    plan = plan_cake(short, COMPUTE, {Source.KV: LoadCost(chunk_s=0.9)}, token_budget=10)
    assert plan.load_order == (range(2),)
    full = History(prompt_tokens=30, chunk_tokens=10, is_stored=(True,) * 3)
    plan = plan_cake(full, COMPUTE, {Source.KV: LoadCost(chunk_s=0.5)}, token_budget=10)
    assert plan.load_order == (range(3),)


@given(histories(), st.data())
def test_every_stored_chunk_is_loaded_once(chunks: History, data: st.DataObject) -> None:
    stored = [chunk for chunk in range(chunks.chunk_count) if chunks.is_stored[chunk]]
    if stored:
        order = load_order(chunks, data.draw(st.sampled_from(stored)))
        assert sorted(chunk for run in order for chunk in run) == stored
