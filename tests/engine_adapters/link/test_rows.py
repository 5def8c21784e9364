from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart
from engine_adapters.link.plan import LinkedEntry, LinkPlan, plan_link
from engine_adapters.link.rows import (
    RowGroup,
    chunk_ranges,
    distinct,
    loaded_chunks,
    missing_counts,
    row_groups,
    split_groups,
)
from tests.engine_adapters.link.drawn_prompts import plans

CHUNK = 4
PLAN = plan_link(
    [EntryPart("a", 10), EntryPart("b", 14), NewPart(2)], LinkMethod.named("attnlink-8")
)
"""Computed: 6 to 13, and 20 to 25."""


def groups(*loaded: frozenset[int]) -> tuple[RowGroup, ...]:
    return row_groups(PLAN, loaded, chunk_tokens=CHUNK)


def test_chunks_of_an_entry_begin_with_it_and_the_last_may_be_short() -> None:
    assert chunk_ranges(PLAN.entries[0], CHUNK) == [range(4), range(4, 8), range(8, 10)]
    assert chunk_ranges(PLAN.entries[1], CHUNK)[0] == range(10, 14)


def test_a_sink_is_stored_before_the_tokens_and_has_no_positions() -> None:
    entry = LinkedEntry(entry_id="a", first_position=20, token_count=6, sink_count=5)
    assert [list(one) for one in chunk_ranges(entry, CHUNK)] == [
        [],
        [20, 21, 22],
        [23, 24, 25],
    ]
    plan = plan_link([EntryPart("a", 6, 5), NewPart(2)], LinkMethod.named("naive"))
    assert loaded_chunks(plan, plan.entries[0], CHUNK) == [1, 2]
    assert missing_counts(plan, [frozenset({1, 2})], chunk_tokens=CHUNK) == {}
    assert missing_counts(plan, [frozenset({2})], chunk_tokens=CHUNK) == {0: 3}
    assert missing_counts(plan, [frozenset({1})], chunk_tokens=CHUNK) == {0: 6}


def test_a_chunk_that_is_computed_again_as_a_whole_is_not_loaded() -> None:
    assert PLAN.computed == (range(6, 14), range(20, 26))
    assert loaded_chunks(PLAN, PLAN.entries[0], CHUNK) == [0, 1]
    assert loaded_chunks(PLAN, PLAN.entries[1], CHUNK) == [1, 2]


def test_nothing_is_computed_in_place_of_what_was_loaded() -> None:
    expected = (RowGroup(0, PLAN.computed),)
    assert groups(frozenset({0, 1}), frozenset({1, 2})) == expected


def test_what_is_computed_can_be_asked_for_entry_by_entry() -> None:
    lost = [frozenset({0}), frozenset({2})]

    def part(positions: range) -> tuple[RowGroup, ...]:
        return row_groups(PLAN, lost, chunk_tokens=CHUNK, positions=positions)

    assert part(range(10)) == (RowGroup(0, (range(4, 6),)), RowGroup(0, (range(6, 10),)))
    behind = part(range(10, 26))
    assert behind == (
        RowGroup(10, (range(10, 18),)),
        RowGroup(0, (range(10, 14), range(20, 26))),
    )
    assert distinct([*part(range(10)), *behind]) == distinct(
        row_groups(PLAN, lost, chunk_tokens=CHUNK)
    )
    assert part(range(0)) == ()


def test_a_lost_chunk_is_computed_as_far_as_it_keeps_its_states() -> None:
    # Of chunk 1 (4 to 7) the link computes 6 and 7 itself.
    found = groups(frozenset({0}), frozenset({1, 2}))
    assert found == (RowGroup(0, (range(4, 6),)), RowGroup(0, PLAN.computed))


def test_what_a_lost_chunk_depends_on_is_computed_with_it() -> None:
    # Chunk 0 of the second entry was not loaded, because the link computes all of it.
    found = groups(frozenset({0, 1}), frozenset({2}))
    assert found == (RowGroup(10, (range(10, 18),)), RowGroup(0, PLAN.computed))


def test_all_is_computed_where_nothing_was_loaded() -> None:
    found = groups(frozenset(), frozenset())
    assert found == (
        RowGroup(0, (range(6),)),
        RowGroup(10, (range(10, 20),)),
        RowGroup(0, PLAN.computed),
    )
    assert found[1].token_count == 10


@given(plans, st.data())
def test_what_is_computed_in_place_suffices_and_no_more(
    plan: LinkPlan, data: st.DataObject
) -> None:
    loaded = [
        frozenset(
            number for number in loaded_chunks(plan, entry, CHUNK) if data.draw(st.booleans())
        )
        for entry in plan.entries
    ]
    found = row_groups(plan, loaded, chunk_tokens=CHUNK)
    counts = missing_counts(plan, loaded, chunk_tokens=CHUNK)
    assert found[-1] == RowGroup(0, plan.computed)
    again = {n for one in plan.computed for n in one}
    filled = {n for group in found[:-1] for one in group.ranges for n in one}
    for number, (entry, numbers) in enumerate(zip(plan.entries, loaded, strict=True)):
        chunks = chunk_ranges(entry, CHUNK)
        here = {n for number in numbers for n in chunks[number]}
        kept = set(entry.positions) - again
        if entry.sink_count:
            # All up to the last one that is needed, in a place of their own.
            first = set(entry.positions[: counts.get(number, 0)])
            assert not filled & set(entry.positions)
            assert kept <= here | first
            assert not first or max(first) in kept - here
            continue
        assert number not in counts
        assert kept <= here | filled
        mine = filled & set(entry.positions)
        assert not mine & here
        # Everything that a token depends on is there before it, and nothing more is computed.
        for position in mine:
            assert set(range(entry.first_position, position)) <= here | filled
        assert not mine or max(mine) in kept
    firsts = {entry.first_position: set(entry.positions) for entry in plan.entries}
    for group in found[:-1]:
        assert {n for one in group.ranges for n in one} <= firsts[group.first_key]


def test_positions_in_several_groups_count_once() -> None:
    assert distinct([RowGroup(0, (range(2), range(5, 7))), RowGroup(0, (range(1, 3),))]) == {
        *(0, 1, 2, 5, 6)
    }


@given(plans, st.integers(0, 40))
def test_a_split_keeps_all_tokens_in_order(plan: LinkPlan, count: int) -> None:
    every = row_groups(plan, [frozenset[int]()] * len(plan.entries), chunk_tokens=CHUNK)
    first, rest = split_groups(every, count)
    assert sum(group.token_count for group in first) == min(
        count, sum(group.token_count for group in every)
    )
    assert rows(first) + rows(rest) == rows(every)
    assert all(group.ranges and all(group.ranges) for group in (*first, *rest))


def rows(groups: tuple[RowGroup, ...]) -> list[tuple[int, int]]:
    return [(group.first_key, n) for group in groups for one in group.ranges for n in one]
