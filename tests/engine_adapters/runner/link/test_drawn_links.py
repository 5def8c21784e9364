"""Prompts of any parts, linked by any method, against a dense computation."""

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.engine_adapters.runner.link.lab import (
    ONE_BY_ONE,
    TOGETHER,
    LinkLab,
    Pace,
    after_sink,
    entry,
    new,
)
from tests.engine_adapters.runner.link.reference import ReferencePart

METHODS = [
    *("naive", "full", "attnlink-2", "attnlink-6", "attnlink-22"),
    *("cacheblend-20", "cacheblend-50", "cacheblend-100"),
    *("query-2", "query-10", "split-4", "split-12"),
]
GAP = 1e-5
"""Ranges that rank nearer to each other may come in another order in other arithmetic."""

LENGTHS = st.integers(0, 11)
DRAWN_PARTS = st.lists(
    st.one_of(
        st.builds(entry, LENGTHS, st.integers(1, 3)),
        st.builds(new, LENGTHS, st.integers(4, 6)),
        st.builds(after_sink, LENGTHS, st.integers(1, 3), st.sampled_from([1, 4, 6])),
    ),
    min_size=1,
    max_size=6,
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    DRAWN_PARTS.filter(lambda parts: any(part.token_ids for part in parts)),
    st.sampled_from(METHODS),
    st.sampled_from([3, 8, 512]),
    st.lists(st.integers(0, 40), max_size=4),
    st.sampled_from([TOGETHER, ONE_BY_ONE, Pace(4, 1), Pace(8, 5)]),
)
def test_any_prompt(
    make_lab: Any,
    parts: list[ReferencePart],
    method: str,
    token_budget: int,
    lost: list[int],
    pace: Pace,
) -> None:
    lab: LinkLab = make_lab()
    lab.expected(parts, method, ())
    assume(lab.dense.least_gap > GAP)
    named = lab.named(parts)
    if any(one.layout_id == lab.state_format.layout.layout_id for one in lab.store.chunks.values()):
        lab.lose(lost)
    linked = lab.check(parts, method, named=named, token_budget=token_budget, pace=pace)
    if method == "attnlink-22" and not any(part.sink_ids for part in parts):
        # Twice the longest entry: nothing is left but what a plain prompt has as well.
        every = [token_id for part in parts for token_id in part.token_ids]
        assert (linked.logits[0] - lab.dense.plain(every)).abs().max() < 1e-4
