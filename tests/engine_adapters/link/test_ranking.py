from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, NewPart, Part
from engine_adapters.link.plan import LinkPlan, chosen_count, plan_link
from engine_adapters.link.ranking import query_positions, ranked_positions
from tests.engine_adapters.link.drawn_prompts import plans

PARTS: list[Part] = [EntryPart("a", 20), NewPart(2), EntryPart("b", 10), NewPart(3)]
NAIVE = plan_link(PARTS, LinkMethod.named("naive"))


def test_the_query_is_what_is_new_at_the_end() -> None:
    assert query_positions(NAIVE) == range(32, 35)
    at_end = plan_link(PARTS[:3], LinkMethod.named("naive"))
    assert query_positions(at_end) == range(31, 32)
    assert query_positions(plan_link([NewPart(4)], LinkMethod.named("naive"))) == range(4)


def test_the_best_ranges_are_taken_and_the_last_one_is_cut() -> None:
    scores = [0.0] * 35
    scores[10] = 3.0
    scores[31] = 2.0
    # 8 to 15 is the second range of the first entry, and 30 to 31 the last of the other one.
    assert ranked_positions(NAIVE, scores, 10) == [30, 31, *range(8, 16)]
    assert ranked_positions(NAIVE, scores, 5) == [30, 31, 8, 9, 10]
    # Those that rank alike come in the order of positions.
    assert ranked_positions(NAIVE, [1.0] * 35, 9) == list(range(9))


def test_what_is_computed_anyway_is_not_chosen() -> None:
    plan = plan_link(PARTS, LinkMethod.named("attnlink-4"))
    scores = [0.0] * 35
    scores[19] = 9.0
    assert ranked_positions(plan, scores, 3) == [0, 1, 2]
    assert ranked_positions(plan, [1.0] * 34 + [0.0], 100) == [*range(18), *range(24, 30)]


@settings(max_examples=30)
@given(plans, st.integers(0, 40), st.data())
def test_as_many_as_there_are(plan: LinkPlan, count: int, data: st.DataObject) -> None:
    score = st.floats(0, 1, width=32)
    scores = data.draw(st.lists(score, min_size=plan.token_count, max_size=plan.token_count))
    found = ranked_positions(plan, scores, count)
    left = plan.token_count - plan.computed_count
    assert len(found) == len(set(found)) == min(count, left)
    assert not set(found) & {n for one in plan.computed for n in one}


def test_as_many_tokens_as_boundaries_have() -> None:
    for name, base in (("query-8", "naive"), ("split-8", "attnlink-4")):
        method = LinkMethod.named(name)
        plan = plan_link(PARTS, method)
        assert plan == plan_link(PARTS, LinkMethod.named(base))
        boundary = plan_link(PARTS, LinkMethod.named("attnlink-8")).computed_count
        assert plan.computed_count + chosen_count(plan, PARTS, method) == boundary
    assert chosen_count(NAIVE, PARTS, LinkMethod.named("naive")) == 0
    assert chosen_count(NAIVE, PARTS, LinkMethod.named("cacheblend-50")) == 15
