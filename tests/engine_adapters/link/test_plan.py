from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart, Part
from engine_adapters.link.plan import (
    LinkedEntry,
    LinkPlan,
    chosen_count,
    joined,
    plan_link,
    with_computed,
)
from tests.engine_adapters.link.drawn_prompts import METHODS, plans, prompts

A, B, SHORT, EMPTY = (
    EntryPart("a", 20),
    EntryPart("b", 10),
    EntryPart("short", 2),
    EntryPart("empty", 0),
)


def planned(name: str, *parts: Part) -> LinkPlan:
    return plan_link(parts, LinkMethod.named(name))


def test_naive_computes_new_tokens_only() -> None:
    plan = planned("naive", A, NewPart(3), B, NewPart(5))
    assert plan.computed == (range(20, 23), range(33, 38))
    assert plan.entries == (
        LinkedEntry(entry_id="a", first_position=0, token_count=20),
        LinkedEntry(entry_id="b", first_position=23, token_count=10),
    )
    assert plan.token_count == 38
    assert plan.computed_count == 8


def test_full_computes_everything() -> None:
    assert planned("full", A, NewPart(3), B).computed == (range(33),)


def test_attnlink_computes_both_sides_of_each_boundary() -> None:
    assert planned("attnlink-4", A, B, NewPart(5)).computed == (range(18, 22), range(28, 35))


def test_the_front_and_the_end_are_no_boundaries() -> None:
    # Only its last token, whose logits are wanted.
    assert planned("attnlink-4", A).computed == (range(19, 20),)
    assert planned("naive", A).computed == (range(19, 20),)


def test_new_tokens_in_front_of_an_entry_make_a_boundary() -> None:
    assert planned("attnlink-4", NewPart(1), A, NewPart(1)).computed == (range(3), range(19, 22))


def test_a_boundary_takes_no_more_than_the_part_has() -> None:
    # The short entry is computed whole, and the tokens after it count from its end.
    assert planned("attnlink-8", A, SHORT, B, NewPart(1)).computed == (range(16, 26), range(28, 33))
    assert planned("attnlink-8", A, SHORT, A, NewPart(1)).computed == (range(16, 26), range(38, 43))


def test_an_empty_part_has_no_boundaries() -> None:
    with_empty = planned("attnlink-4", EMPTY, A, EMPTY, NewPart(0), B, EMPTY, NewPart(5), EMPTY)
    assert with_empty == planned("attnlink-4", A, B, NewPart(5))


def test_an_entry_may_come_several_times() -> None:
    plan = planned("naive", B, B, NewPart(1))
    assert [entry.positions for entry in plan.entries] == [range(10), range(10, 20)]


@pytest.mark.parametrize("parts", [(), (EMPTY, NewPart(0))])
def test_refuses_a_prompt_without_tokens(parts: tuple[Part, ...]) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        planned("naive", *parts)


def test_more_tokens_are_computed() -> None:
    plan = with_computed(planned("naive", A, NewPart(3)), [7, 0, 19, 6])
    assert plan.computed == (range(1), range(6, 8), range(19, 23))


@pytest.mark.parametrize(("percent", "count"), [(1, 1), (10, 3), (11, 4), (90, 27), (100, 29)])
def test_a_share_of_entries_is_rounded_up(percent: int, count: int) -> None:
    # 30 tokens in entries, the last of which is computed in any case.
    method = LinkMethod.named(f"cacheblend-{percent}")
    parts: list[Part] = [NewPart(9), A, B]
    assert chosen_count(plan_link(parts, method), parts, method) == count


@given(plans)
def test_every_token_is_computed_or_in_an_entry(plan: LinkPlan) -> None:
    computed = [number for one in plan.computed for number in one]
    kept = {number for entry in plan.entries for number in entry.positions}
    assert {*computed, *kept} == set(range(plan.token_count))
    assert computed == sorted(set(computed))
    assert all(before.stop < after.start for before, after in pairwise(plan.computed))
    assert computed[-1] == plan.token_count - 1


@given(prompts(), METHODS)
def test_only_tokens_near_a_boundary_are_computed_again(
    parts: list[Part], method: LinkMethod
) -> None:
    plan = plan_link(parts, method)
    computed = {number for one in plan.computed for number in one}
    for entry in plan.entries:
        for place, position in enumerate(entry.positions):
            after = len(entry.positions) - 1 - place
            is_near = method.half is None or (
                (entry.first_position > 0 and place < method.half)
                or (entry.positions.stop < plan.token_count and after < method.half)
            )
            is_last = position == plan.token_count - 1
            assert (position in computed) == (is_near or is_last)


@given(prompts())
def test_twice_the_longest_entry_leaves_nothing_but_the_front(parts: list[Part]) -> None:
    plan = plan_link(parts, LinkMethod.named("attnlink-24"))
    kept = set(range(plan.token_count)) - {number for one in plan.computed for number in one}
    # An entry at the front with nothing after it has the states of a plain prompt.
    assert not kept or len(plan.entries) == 1
    if kept:
        assert plan.entries[0].positions == range(plan.token_count)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))))
def test_joined_ranges_have_the_same_numbers_and_do_not_touch(
    drawn: list[tuple[int, int]],
) -> None:
    ranges = [range(first, first + count) for first, count in sorted(drawn)]
    found = list(joined(ranges))
    assert [n for one in found for n in one] == sorted({n for one in ranges for n in one})
    assert all(before.stop < after.start for before, after in pairwise(found))
