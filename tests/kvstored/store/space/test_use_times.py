"""Times of rows; ``eviction_conformance`` holds the order that comes of them against a model."""

import numpy as np
import pytest

from kvstored.format.identity import ChunkId
from kvstored.store.space import use_times
from kvstored.store.space.chunk_columns import HELD, UNUSED, ChunkColumns
from kvstored.store.space.use_times import POSITION_MAX, UseTimes


def times_of(count: int) -> UseTimes:
    """Rows used at 1, 2 and so on."""
    columns = ChunkColumns()
    for number in range(count):
        columns.take(ChunkId(b"n" * 16, number.to_bytes(32, "big")).encode())
    times = UseTimes(columns)
    for row in range(count):
        times.use(row, row + 1)
    return times


def all_of(times: UseTimes, count: int) -> list[int]:
    (segment,) = times.segments()
    found = [times.of(row) for row in range(count)]
    assert segment[:count].tolist() == found
    assert segment[count:].tolist() == [UNUSED] * (len(segment) - count)
    assert next(times.segments(2))[: -(-count // 2)].tolist() == found[::2]
    return found


def positions(times: UseTimes, count: int) -> list[int]:
    return times.positions(0, np.arange(count)).tolist()


def test_a_use_of_one_is_a_use_of_its_bundle() -> None:
    times = times_of(5)
    times.use_together([1, 2, 4], 9)
    assert all_of(times, 5) == [1, 9, 9, 4, 9]
    assert positions(times, 5) == [0, 0, 1, 0, 2]
    times.use(2, 10)
    assert all_of(times, 5) == [1, 10, 10, 4, 10]
    times.leave(4)
    times.use(1, 11)
    assert (all_of(times, 5), times.bundle_count) == ([1, 11, 11, 4, 5], 1)


def test_a_held_row_is_in_no_bundle() -> None:
    times = times_of(3)
    times.use_together([0, 1, 2], 7)
    times.hold(1, 8)
    times.use(0, 9)
    assert all_of(times, 3) == [9, 8 | HELD, 9]
    times.use(1, 10)
    assert all_of(times, 3) == [9, 10, 9]


def test_what_was_together_before_the_start_is_used_when_its_last_row_was() -> None:
    times = times_of(6)
    later = POSITION_MAX + 5
    times.use(1, later)
    times.put_together([0, 1, 2, 3], before=HELD)
    assert all_of(times, 6) == [4, later, 4, 4, 5, 6]
    assert positions(times, 4) == [0, 0, 1, 2]
    assert times.version == 1


def test_times_alone_keep_the_order_of_a_bundle_and_bring_it_back() -> None:
    times = times_of(6)
    times.use_together([4, 0, 2], 9)
    times.hold(3, 10)
    assert times.single(0)[:6].tolist() == [8, 2, 7, 10, 9, 6]
    columns = ChunkColumns()
    identities = np.zeros((6, 48), np.uint8)
    columns.append(identities, np.zeros(6, np.uint64), times.single(0)[:6])
    loaded = UseTimes(columns)
    loaded.put_together([4, 0, 2], before=HELD)
    assert all_of(loaded, 6) == [9, 2, 9, 10, 9, 6]
    assert positions(loaded, 6) == [1, 0, 2, 0, 0, 0]


def test_what_was_used_together_since_the_start_stays_so() -> None:
    """A record names chunks that no turn reads again, too."""
    times = times_of(4)
    times.use_together([2, 3], 8)
    times.put_together([0, 1, 2, 3], before=HELD)
    assert all_of(times, 4) == [1, 2, 8, 8]
    times.leave(3)
    times.hold(3, 9)
    times.put_together([0, 1, 3], before=HELD)
    assert all_of(times, 4) == [1, 2, 8, 9 | HELD]
    assert times.version == 0


def test_positions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_times, "POSITION_MAX", 2)
    times = times_of(5)
    times.use_together(range(5), 9)
    assert positions(times, 5) == [0, 1, 2, 2, 2]
    for row in range(5):
        times.leave(row)
    assert times.bundle_count == 0


def test_a_pause_lets_nobody_in_where_no_owner_says_how() -> None:
    times = UseTimes(ChunkColumns())
    times.pause()
    assert list(times.segments()) == []
