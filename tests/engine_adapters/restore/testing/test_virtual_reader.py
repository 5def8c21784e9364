import math

from engine_adapters.restore.testing.virtual_reader import VirtualReader


def reader(*order: int, latency_s: float = 0.0, lost: int | None = None) -> VirtualReader:
    return VirtualReader(
        order, lambda chunk, _: math.inf if chunk == lost else 1.0, latency_s=latency_s
    )


def test_chunks_arrive_one_after_the_other() -> None:
    running = reader(2, 1, 0, latency_s=0.5)
    assert running.advance(0.4, 0) == ([], [])
    assert running.next_s == 0.5
    assert running.advance(1.4, 0) == ([], [])
    assert running.next_s == 1.5
    assert running.advance(2.5, 0) == ([2, 1], [])
    assert not running.is_idle
    assert running.advance(9.0, 0) == ([0], [])
    assert running.is_idle
    assert running.read_count == 3


def test_it_begins_no_chunk_that_the_engine_has_reached() -> None:
    running = reader(3, 2, 1, 0)
    assert running.advance(0.5, 0) == ([], [])
    assert running.advance(1.5, 2) == ([3], [])
    assert running.advance(9.0, 2) == ([2], [])
    assert running.is_idle
    assert running.read_count == 2


def test_a_chunk_in_flight_arrives_all_the_same() -> None:
    running = reader(1, 0)
    running.advance(0.5, 0)
    assert running.advance(5.0, 2) == ([1], [])
    assert running.is_idle


def test_a_lost_chunk_costs_no_time() -> None:
    running = reader(2, 1, 0, lost=1)
    assert running.advance(1.0, 0) == ([2], [1])
    assert running.advance(2.0, 0) == ([0], [])
