"""The read plan: every wanted slice once, in the order that was asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.geometry import ChunkGeometry
from kvstored.store.read.plan import LayerRun, Order, PlanLimits, plan_runs, split_layers

KIB = 1024
LIMITS = PlanLimits(run_bytes_min=16 * KIB, run_bytes_max=64 * KIB)
GEOMETRY = ChunkGeometry.of_slices((8 * KIB,) * 6)


def run(chunk: int, first_layer: int, layer_count: int, with_header: bool) -> LayerRun:
    return LayerRun.of(GEOMETRY, chunk, first_layer, layer_count, with_header=with_header)


def plan(
    order: Order, lanes: list[int | None], first: int = 0, count: int = 6
) -> dict[int, list[LayerRun]]:
    return plan_runs(
        lanes=lanes,
        geometries=[None if lane is None else GEOMETRY for lane in lanes],
        order=order,
        first_layer=first,
        layer_count=count,
        limits=LIMITS,
    )


def test_tail_first_reads_whole_chunks_from_the_back() -> None:
    assert plan(Order.TAIL_FIRST, [0, 1, 0, None]) == {
        0: [run(2, 0, 6, True), run(0, 0, 6, True)],
        1: [run(1, 0, 6, True)],
    }


def test_head_first_reads_whole_chunks_from_the_front() -> None:
    runs = plan(Order.HEAD_FIRST, [0, 0])
    assert [one.chunk for one in runs[0]] == [0, 1]


def test_layer_first_reads_layer_groups_across_chunks() -> None:
    assert plan(Order.LAYER_FIRST, [0, 0]) == {
        0: [
            run(0, 0, 2, True),
            run(1, 0, 2, True),
            run(0, 2, 2, False),
            run(1, 2, 2, False),
            run(0, 4, 2, False),
            run(1, 4, 2, False),
        ]
    }


def test_header_is_read_alone_before_a_range_that_does_not_start_at_layer_0() -> None:
    assert plan(Order.HEAD_FIRST, [0], first=3, count=2) == {
        0: [run(0, 3, 0, True), run(0, 3, 2, False)]
    }


def test_the_header_comes_with_the_first_layer_that_holds_anything() -> None:
    geometry = ChunkGeometry.of_slices((0, 0, 8 * KIB, 8 * KIB))
    runs = plan_runs(
        lanes=[0],
        geometries=[geometry],
        order=Order.LAYER_FIRST,
        first_layer=2,
        layer_count=2,
        limits=LIMITS,
    )
    assert runs == {0: [LayerRun.of(geometry, 0, 2, 2, with_header=True)]}


def test_a_run_tells_its_bytes_in_the_extent() -> None:
    page = 4 * KIB
    whole, rest = run(0, 0, 6, True), run(0, 2, 3, False)
    assert (whole.start, whole.byte_count) == (0, page + 6 * 8 * KIB)
    assert (rest.start, rest.byte_count, rest.end_layer) == (page + 2 * 8 * KIB, 3 * 8 * KIB, 5)
    header = run(0, 3, 0, True)
    assert (header.start, header.byte_count) == (0, page)


def test_lane_without_geometry_or_geometry_without_lane_is_not_planned() -> None:
    planned = plan_runs(
        lanes=[None, 0],
        geometries=[GEOMETRY, None],
        order=Order.HEAD_FIRST,
        first_layer=0,
        layer_count=6,
        limits=LIMITS,
    )
    assert planned == {}


def test_nothing_stored_is_an_empty_plan() -> None:
    for order in Order:
        assert plan(order, [None, None]) == {}


def test_layers_come_in_order_where_chunks_are_cut_at_different_ones() -> None:
    short = ChunkGeometry.of_slices((4 * KIB,) * 6)
    runs = plan_runs(
        lanes=[0, 0],
        geometries=[GEOMETRY, short],
        order=Order.LAYER_FIRST,
        first_layer=0,
        layer_count=6,
        limits=LIMITS,
    )[0]
    assert [(run.chunk, run.first_layer, run.layer_count) for run in runs] == [
        (0, 0, 2),
        (1, 0, 4),
        (0, 2, 2),
        (0, 4, 2),
        (1, 4, 2),
    ]


def test_a_slice_larger_than_the_limit_is_a_run_of_its_own() -> None:
    geometry = ChunkGeometry.of_slices((128 * KIB, 4 * KIB, 4 * KIB))
    runs = split_layers(geometry, first_layer=0, layer_count=3, run_bytes=64 * KIB)
    assert runs == [(0, 1), (1, 2)]


@given(
    sizes=st.lists(st.integers(0, 40 * KIB), min_size=1, max_size=12),
    lanes=st.lists(st.sampled_from([None, 0, 1, 2]), min_size=1, max_size=8),
    order=st.sampled_from(Order),
    data=st.data(),
)
def test_every_wanted_slice_is_planned_exactly_once(
    sizes: list[int], lanes: list[int | None], order: Order, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(sizes) - 1))
    count = data.draw(st.integers(1, len(sizes) - first))
    geometry = ChunkGeometry.of_slices(tuple(sizes))
    plans = plan_runs(
        lanes=lanes,
        geometries=[None if lane is None else geometry for lane in lanes],
        order=order,
        first_layer=first,
        layer_count=count,
        limits=LIMITS,
    )
    seen = [
        (one.chunk, layer)
        for runs in plans.values()
        for one in runs
        for layer in range(one.first_layer, one.end_layer)
    ]
    wanted = {
        (chunk, layer)
        for chunk, lane in enumerate(lanes)
        if lane is not None
        for layer in range(first, first + count)
    }
    assert sorted(seen) == sorted(wanted)
    for lane, runs in plans.items():
        headers = [one.chunk for one in runs if one.with_header]
        assert sorted(headers) == sorted({one.chunk for one in runs})
        assert all(lanes[one.chunk] == lane for one in runs)
        first_runs = {one.chunk: one for one in reversed(runs)}
        assert all(one.with_header for one in first_runs.values())
        for one in runs:
            size = geometry.slice_offsets[one.end_layer] - geometry.slice_offsets[one.first_layer]
            assert one.layer_count <= 1 or size <= LIMITS.run_bytes_max


@pytest.mark.parametrize("order", [Order.TAIL_FIRST, Order.HEAD_FIRST])
def test_chunk_orders_finish_one_chunk_before_the_next(order: Order) -> None:
    geometry = ChunkGeometry.of_slices((40 * KIB,) * 4)
    runs = plan_runs(
        lanes=[0, 0, 0],
        geometries=[geometry] * 3,
        order=order,
        first_layer=0,
        layer_count=4,
        limits=LIMITS,
    )[0]
    chunks = [run.chunk for run in runs]
    assert chunks == sorted(chunks, reverse=order is Order.TAIL_FIRST)
    assert len(chunks) == 12
