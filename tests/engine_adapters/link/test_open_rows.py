from engine_adapters.link.method import LinkMethod
from engine_adapters.link.open_rows import OpenRows
from engine_adapters.link.parts import EntryPart, NewPart
from engine_adapters.link.plan import plan_link
from engine_adapters.link.rows import RowGroup

CHUNK = 4
PLAN = plan_link(
    [NewPart(3), EntryPart("a", 8), EntryPart("b", 8), EntryPart("a", 8), NewPart(2)],
    LinkMethod.named("attnlink-4"),
)
"""Computed: 0 to 4, 9 to 12, 17 to 20, and 25 to 28. Entries begin at 3, 11 and 19."""


def rows(early_tokens: int | None = 1) -> OpenRows:
    return OpenRows(PLAN, chunk_tokens=CHUNK, early_tokens=early_tokens)


def groups(made: OpenRows) -> tuple[RowGroup, ...]:
    return made.groups


def linked(*ranges: range) -> RowGroup:
    return RowGroup(0, ranges)


def test_what_is_before_an_entry_that_may_come_is_open() -> None:
    made = rows()
    assert made.ready_tokens == 0
    assert made.open_early(None)
    assert groups(made) == (linked(range(3)),)
    made.take(2)
    assert made.ready_tokens == 1
    # Nothing new has come.
    assert not made.open_early(None)
    assert not made.open_early(0)
    for entry, chunk in ((0, 0), (0, 1), (2, 0), (2, 1)):
        made.add(entry, chunk)
    assert made.open_early(1)
    assert groups(made) == (linked(range(3)), linked(range(3, 5), range(9, 11)))
    assert made.ready_tokens == 5
    made.add(1, 0)
    made.add(1, 1)
    made.open_all()
    behind = linked(range(11, 13), range(17, 21), range(25, 29))
    assert groups(made)[2:] == (behind,)
    assert made.all_groups == groups(made)


def test_what_is_lost_of_an_entry_is_computed_with_it() -> None:
    made = rows()
    made.add(0, 0)
    assert made.open_early(1)
    # Chunk 1 of the first entry is lost: 7 and 8 keep states, 9 and 10 are computed again.
    assert groups(made) == (
        RowGroup(3, (range(7, 9),)),
        linked(range(5), range(9, 11)),
    )
    assert made.all_groups[0] == groups(made)[0]


def test_too_few_tokens_are_not_worth_a_step() -> None:
    made = rows(early_tokens=4)
    assert not made.open_early(None)
    assert made.open_early(1)
    assert made.ready_tokens > 4


def test_nothing_is_open_early_where_nobody_asks_for_it() -> None:
    made = rows(early_tokens=None)
    assert not made.open_early(2)
    made.open_all()
    assert groups(made)[-1] == linked(*PLAN.computed)


def test_a_prompt_of_which_nothing_is_worth_loading_waits_for_nothing() -> None:
    plan = plan_link([EntryPart("a", 8), NewPart(2)], LinkMethod.named("full"))
    made = OpenRows(plan, chunk_tokens=CHUNK, early_tokens=1)
    assert made.first_wanted() == 10
    made.open_all()
    assert groups(made) == (linked(range(10)),)
    assert made.missing_counts == {}


def test_what_is_missing_after_a_sink_is_counted() -> None:
    plan = plan_link([EntryPart("a", 8, 4), NewPart(2)], LinkMethod.named("naive"))
    made = OpenRows(plan, chunk_tokens=CHUNK, early_tokens=None)
    made.add(0, 1)
    assert made.missing_counts == {0: 8}
    made.add(0, 2)
    assert made.missing_counts == {}
