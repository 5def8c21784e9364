from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.link.rows import RowGroup
from engine_adapters.runner.engine.scheduler import Progress, plan_step
from engine_adapters.runner.model.step import ScatteredSegment


def progress(request_id: int, token_count: int, computed_count: int) -> Progress:
    return Progress(
        request_id=request_id,
        first_slot=1000 * request_id,
        token_count=token_count,
        computed_count=computed_count,
    )


def restoring(
    request_id: int, token_count: int, computed_count: int, step_tokens_max: int | None = None
) -> Progress:
    return replace(
        progress(request_id, token_count, computed_count),
        is_restoring=True,
        step_tokens_max=step_tokens_max,
    )


def test_decodes_come_before_prefills() -> None:
    running = [progress(0, 100, 0), progress(1, 51, 50), progress(2, 100, 0)]
    segments = plan_step(running, token_budget=8)
    assert [(part.request_id, part.token_count) for part in segments] == [(1, 1), (0, 7)]


def test_a_prefill_continues_where_it_stopped() -> None:
    (segment,) = plan_step([progress(3, 100, 96)], token_budget=8)
    assert segment.first_position == 96
    assert segment.stop_position == 100
    assert segment.first_slot == 3000
    assert segment.rows == slice(0, 4)


def test_restorations_get_what_decodes_and_other_prefills_leave() -> None:
    running = [restoring(0, 100, 0), progress(1, 6, 0), restoring(2, 100, 0), progress(3, 51, 50)]
    segments = plan_step(running, token_budget=8)
    assert [(part.request_id, part.token_count) for part in segments] == [(3, 1), (1, 6), (0, 1)]


def test_the_last_token_of_a_restored_prompt_is_no_decode() -> None:
    running = [restoring(0, 100, 99), progress(1, 100, 0), progress(2, 51, 50)]
    segments = plan_step(running, token_budget=8)
    assert [part.request_id for part in segments] == [2, 1]


def test_a_restoration_computes_no_more_than_it_wants() -> None:
    running = [restoring(0, 100, 0, 3), restoring(1, 100, 0, 0), restoring(2, 100, 98, 9)]
    segments = plan_step(running, token_budget=8)
    assert [(part.request_id, part.token_count) for part in segments] == [(0, 3), (2, 2)]
    assert [part.first_row for part in segments] == [0, 3]


def test_with_fewer_tokens_than_sequences_the_last_ones_wait() -> None:
    running = [progress(index, 2, 1) for index in range(3)]
    segments = plan_step(running, token_budget=2)
    assert [part.request_id for part in segments] == [0, 1]
    assert plan_step(running, token_budget=0) == []


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8),
    st.integers(8, 60),
)
def test_every_step_fills_the_budget_and_starves_no_decode(
    sequences: list[tuple[int, int]], token_budget: int
) -> None:
    running = [
        progress(index, computed + pending, computed)
        for index, (computed, pending) in enumerate(sequences)
    ]
    segments = plan_step(running, token_budget=token_budget)
    rows = [row for part in segments for row in range(part.rows.start, part.rows.stop)]
    pending = sum(item.pending_count for item in running)
    assert rows == list(range(min(token_budget, pending)))
    planned = {part.request_id for part in segments}
    assert len(planned) == len(segments)
    assert planned >= {item.request_id for item in running if item.pending_count == 1}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50), st.integers(1, 50), st.booleans(), st.none() | st.integers(0, 50)
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(8, 60),
)
def test_a_restoration_never_takes_a_token_from_another_sequence(
    sequences: list[tuple[int, int, bool, int | None]], token_budget: int
) -> None:
    running = [
        restoring(index, computed + pending, computed, wanted)
        if is_restoring
        else progress(index, computed + pending, computed)
        for index, (computed, pending, is_restoring, wanted) in enumerate(sequences)
    ]
    others = [item for item in running if not item.is_restoring]
    segments = plan_step(running, token_budget=token_budget)
    without = plan_step(others, token_budget=token_budget)
    assert segments[: len(without)] == without
    counts = {part.request_id: part.token_count for part in segments}
    assert sum(counts.values()) == min(token_budget, sum(item.wanted_count for item in running))
    assert all(counts.get(item.request_id, 0) <= item.wanted_count for item in running)


def linked(request_id: int, *groups: RowGroup) -> Progress:
    return replace(progress(request_id, 100, 0), groups=groups)


FILL = RowGroup(20, (range(20, 23),))
LINK = RowGroup(0, (range(8, 12), range(40, 42), range(95, 100)))


def test_all_ranges_of_a_linked_prompt_that_fit_are_in_one_step() -> None:
    first, second = plan_step([linked(3, FILL, LINK)], token_budget=50)
    assert isinstance(first, ScatteredSegment)
    assert isinstance(second, ScatteredSegment)
    assert (first.ranges, first.first_key, first.rows) == (FILL.ranges, 20, slice(0, 3))
    assert (second.ranges, second.first_key, second.rows) == (LINK.ranges, 0, slice(3, 14))
    assert second.stop_token == 100
    assert second.first_slot == 3000


def test_ranges_that_do_not_fit_wait_in_order() -> None:
    running = [linked(0, FILL, LINK), progress(1, 51, 50)]
    decode, first, second = plan_step(running, token_budget=8)
    assert decode.request_id == 1
    assert first.ranges == FILL.ranges
    assert second.ranges == (range(8, 12),)
    assert second.first_row == 4


def test_a_linked_prompt_whose_entries_are_loaded_waits() -> None:
    waiting = replace(linked(0, LINK), is_restoring=True, step_tokens_max=0)
    assert plan_step([waiting], token_budget=8) == []
