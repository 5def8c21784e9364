from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore import (
    LayerCosts,
    LayerSchedule,
    Source,
    best_bound_s,
    best_bounded,
    bound_s,
    predict_s,
)
from tests.engine_adapters.restore.drawn_costs import any_costs

H, KV, RE = Source.HIDDEN, Source.KV, Source.COMPUTE
COSTS = LayerCosts(io_hidden_s=2.0, io_kv_s=4.0, compute_s=10.0, project_s=1.0)
SLOW = LayerCosts(io_hidden_s=2.0, io_kv_s=4.0, compute_s=30.0, project_s=5.0)

LOADING = replace(SLOW, load_s=1.5)


@pytest.mark.parametrize(
    ("parts", "costs", "seconds"),
    [
        (((RE, 3),), COSTS, 30.0),
        (((KV, 3),), COSTS, 12.0),
        # Read, read, read, project: only the last projection is not hidden.
        (((H, 3),), COSTS, 7.0),
        # Read, then three projections that wait for nothing more.
        (((H, 3),), SLOW, 17.0),
        # The hidden states are there before the computation from tokens ends.
        (((RE, 1), (H, 3)), COSTS, 13.0),
        # Projections that were late have caught up with the reads: the last one waits again.
        (((RE, 1), (H, 7)), COSTS, 17.0),
        (((RE, 1), (H, 12)), COSTS, 25.0),
        # Keys and values are read while the last layers are projected.
        (((H, 3), (KV, 2)), SLOW, 17.0),
        (((H, 3), (KV, 3)), SLOW, 18.0),
        # Read first, keys and values delay the hidden states.
        (((KV, 2), (H, 3)), SLOW, 25.0),
        (((RE, 1), (KV, 2)), COSTS, 10.0),
        # Loading is hidden by the next read, but for that of the last layer.
        (((KV, 3),), LOADING, 13.5),
        # The loads wait for the projections, then for nothing more.
        (((H, 3), (KV, 2)), LOADING, 20.0),
        # 3 x 2 + 3 x 4 s of reads and the last load.
        (((H, 3), (KV, 3)), LOADING, 21.5),
        (((RE, 1), (KV, 2)), LOADING, 33.0),
    ],
)
def test_worked_pipelines(
    parts: tuple[tuple[Source, int], ...], costs: LayerCosts, seconds: float
) -> None:
    assert predict_s(LayerSchedule.of(*parts), costs) == seconds


def test_bounds_of_a_schedule_and_of_all() -> None:
    schedule = LayerSchedule.of((RE, 1), (H, 3), (KV, 1))
    assert bound_s(schedule, COSTS) == 13.0
    assert bound_s(schedule, SLOW) == 45.0
    # 7 H + 1 RE reads 14 s and computes 17 s; 8 H reads 16 s.
    assert best_bound_s(COSTS, 8) == 16.0
    # 4 H + 4 KV: 24 s of reads, 20 s of projections; 5 H + 3 KV: 22 and 25.
    assert best_bound_s(SLOW, 8) == 24.0
    # Loading keeps the compute side busy: 30 + 15 and 1.5 s; of 5 H + 3 KV 25 and 4.5 s.
    assert bound_s(schedule, LOADING) == 46.5
    assert best_bound_s(LOADING, 8) == 26.0
    assert str(best_bounded(LOADING, 8)) == "3 H + 5 KV"
    assert str(best_bounded(COSTS, 12)) == "11 H + 1 RE"


@st.composite
def schedules(draw: st.DrawFn) -> LayerSchedule:
    computed = draw(st.integers(0, 8))
    stored = draw(st.lists(st.sampled_from([H, KV]), max_size=12))
    return LayerSchedule((RE,) * computed + tuple(stored) or (KV,))


@given(schedules(), any_costs())
def test_no_schedule_is_shorter_than_its_bound_or_longer_than_without_overlap(
    schedule: LayerSchedule, costs: LayerCosts
) -> None:
    predicted_s = predict_s(schedule, costs)
    each = {
        H: costs.io_hidden_s + costs.project_s,
        KV: costs.io_kv_s + costs.load_s,
        RE: costs.compute_s,
    }
    in_turn_s = sum(each[source] for source in schedule.sources)
    assert best_bound_s(costs, schedule.layer_count) <= bound_s(schedule, costs)
    assert bound_s(schedule, costs) <= predicted_s * (1 + 1e-9)
    assert predicted_s <= in_turn_s * (1 + 1e-9)


@given(any_costs(), st.integers(1, 12))
def test_the_best_bound_is_the_least_of_all_orders_of_sources(
    costs: LayerCosts, layer_count: int
) -> None:
    every = [
        LayerSchedule.of((RE, first), (H, second - first), (KV, layer_count - second))
        for first in range(layer_count + 1)
        for second in range(first, layer_count + 1)
    ]
    assert best_bound_s(costs, layer_count) == min(bound_s(one, costs) for one in every)


@given(any_costs())
def test_more_layers_never_take_less_time(costs: LayerCosts) -> None:
    for source in Source:
        times = [predict_s(LayerSchedule.of((source, count)), costs) for count in range(1, 10)]
        assert all(shorter < longer for shorter, longer in pairwise(times))
