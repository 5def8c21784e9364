import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore.arrivals import Arrivals
from engine_adapters.restore.chunk_costs import LoadCost
from engine_adapters.restore.rates import Rates


def arrivals(*order: int, chunk_s: float = 10.0, latency_s: float = 0.0) -> Arrivals:
    rates = Rates(LoadCost(chunk_s=chunk_s), token_budget=1)
    return Arrivals(order, rates, latency_s=latency_s, now_s=100.0)


def test_a_chunk_has_to_wait_for_those_before_it() -> None:
    loading = arrivals(2, 1, 0)
    assert [loading.wait_s(chunk) for chunk in (2, 1, 0)] == [10, 20, 30]
    loading.observe(104.0, (), ())
    assert [loading.wait_s(chunk) for chunk in (2, 1, 0)] == [6, 16, 26]
    loading.observe(110.0, (2,), ())
    assert [loading.wait_s(chunk) for chunk in (2, 1, 0)] == [0, 10, 20]
    loading.take((2,))
    assert loading.is_taken(2)
    assert not loading.is_taken(1)


def test_an_early_chunk_waits_for_those_before_it_all_the_same() -> None:
    loading = arrivals(2, 1, 0)
    loading.observe(110.0, (1,), ())
    assert loading.wait_s(1) > 0
    loading.observe(110.0, (2,), ())
    assert loading.wait_s(1) == 0


def test_a_reader_may_be_late_by_half_before_it_counts_as_slow() -> None:
    loading = arrivals(1, 0)
    loading.observe(114.0, (), ())
    assert [loading.wait_s(chunk) for chunk in (1, 0)] == [0, 10]
    loading.observe(116.0, (), ())
    assert [loading.wait_s(chunk) for chunk in (1, 0)] == [16, 32]


def test_nobody_waits_for_forgotten_chunks() -> None:
    loading = arrivals(3, 2, 1, 0)
    loading.forget([2, 2, 7])
    assert [loading.wait_s(chunk) for chunk in (3, 1, 0)] == [10, 20, 30]


def test_nobody_waits_for_lost_chunks() -> None:
    loading = arrivals(2, 1, 0)
    loading.observe(100.0, (), (2,))
    assert [loading.wait_s(chunk) for chunk in (1, 0)] == [10, 20]


def test_runs_are_those_of_the_order_without_lost_chunks() -> None:
    loading = arrivals(5, 8, 7, 4, 3)
    assert loading.ranges_from(0) == [range(3, 6), range(7, 9)]
    assert loading.ranges_from(4) == [range(4, 6), range(7, 9)]
    loading.observe(110.0, (5,), (4, 9))
    assert loading.ranges_from(0) == [range(3, 4), range(5, 6), range(7, 9)]
    assert loading.ranges_from(9) == []
    assert arrivals().ranges_from(0) == []


@given(
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.lists(st.floats(1, 29), min_size=60, max_size=60),
)
def test_looks_of_any_distance_tell_how_fast_chunks_come(
    chunk_s: float, expected_s: float, distances: list[float]
) -> None:
    """``distances`` are those between two looks, in chunks: so many that even an expectation
    that was wrong by 100 times is forgotten."""
    order = range(2000)
    rates = Rates(LoadCost(chunk_s=expected_s), token_budget=1)
    loading = Arrivals(order, rates, latency_s=0.0, now_s=100.0)
    seen, at = 0, 0.0
    for distance in distances:
        at += distance
        loading.observe(100 + at * chunk_s, order[seen : int(at)], ())
        seen = int(at)
    assert rates.chunk_s.value == pytest.approx(chunk_s, rel=0.3)


def test_a_look_long_after_the_last_chunk_does_not_make_the_reader_slower() -> None:
    """Bug: a restoration that had loaded all within a step taught the next ones a slow reader.

    Fails when ``_measure`` takes its bound behind the last chunk, or does not know of lost ones.
    """
    rates = Rates(LoadCost(chunk_s=10.0), token_budget=1)
    loading = Arrivals(range(4), rates, latency_s=0.0, now_s=100.0)
    loading.observe(200.0, range(4), ())
    loading = Arrivals(range(5), rates, latency_s=0.0, now_s=100.0)
    loading.observe(200.0, range(4), (4,))
    assert rates.chunk_s.value == 10
    loading = Arrivals(range(5), rates, latency_s=0.0, now_s=100.0)
    loading.observe(200.0, range(4), ())
    assert rates.chunk_s.value > 10


def test_a_slow_reader_is_learnt_from_its_last_chunk() -> None:
    """Fails when ``_measure`` does not look at when nothing had come yet."""
    rates = Rates(LoadCost(chunk_s=1.0), token_budget=1)
    for _ in range(20):
        loading = Arrivals(range(1), rates, latency_s=0.0, now_s=100.0)
        loading.observe(109.0, (), ())
        loading.observe(110.0, (0,), ())
    assert rates.chunk_s.value == pytest.approx(9, rel=0.1)
