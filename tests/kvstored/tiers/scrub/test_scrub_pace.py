"""The scrub's rate, its rests and the order of its looks, under a clock of the test's own.

Fails when ``Pace.take`` begins every request at ``now_s`` (seen: ``4096 <= 1`` for two requests
at once), or saves up idle time (seen: a wait of -1000 s); when ``looks`` does not go round
(seen: with 257 rows from the second look on, ``[256]`` are all rows).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.tiers.scrub.scrub_pace import (
    REQUEST_COST_BYTES_MIN,
    ROWS_PER_LOOK,
    Pace,
    ScrubLimits,
    look_count,
    looks,
)

MIB = 1024 * 1024
RATE = 32 * MIB

requests = st.lists(
    st.tuples(
        st.integers(min_value=4096, max_value=2 * MIB),
        st.floats(min_value=0, max_value=1, allow_nan=False),
    ),
    min_size=1,
    max_size=50,
)


@given(requests=requests, start_s=st.floats(min_value=0, max_value=1e6, allow_nan=False))
def test_no_interval_sees_more_than_the_rate_and_one_request(
    requests: list[tuple[int, float]], start_s: float
) -> None:
    """``requests`` are bytes, and the seconds that the transfer and what follows it take."""
    pace, now_s = Pace(RATE), start_s
    begun: list[tuple[float, int]] = []
    for byte_count, busy_s in requests:
        now_s += pace.take(byte_count, now_s)
        begun.append((now_s, byte_count))
        now_s += busy_s
    for first, (from_s, _) in enumerate(begun):
        total_bytes = 0
        for to_s, byte_count in begun[first:]:
            # All that began before this one; this one is the "one request".
            assert total_bytes <= RATE * (to_s - from_s) + 1
            total_bytes += byte_count


def test_a_scrub_that_never_idles_reads_at_the_rate() -> None:
    pace, now_s = Pace(RATE), 5.0
    for _ in range(32):
        now_s += pace.take(MIB, now_s)
    assert now_s == pytest.approx(5.0 + 31 / 32)


def test_idle_time_is_not_saved_up() -> None:
    pace = Pace(RATE)
    assert pace.take(MIB, 0.0) == 0
    assert pace.take(MIB, 1000.0) == 0
    assert pace.take(MIB, 1000.0) == pytest.approx(1 / 32)


def test_a_short_request_costs_more_than_its_bytes() -> None:
    pace = Pace(REQUEST_COST_BYTES_MIN)
    assert pace.take(4096, 0.0) == 0
    assert pace.take(4096, 0.0) == 1


def test_a_rate_must_be_positive() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Pace(0)


@pytest.mark.parametrize(("took_s", "wait_s"), [(0.0, 100.0), (30.0, 70.0), (500.0, 0.0)])
def test_passes_begin_an_interval_apart_or_follow_each_other(took_s: float, wait_s: float) -> None:
    limits = ScrubLimits(bytes_per_s=1, start_delay_s=0, pass_interval_s=100)
    assert limits.next_pass_wait_s(took_s) == wait_s


@given(row_end=st.integers(min_value=1, max_value=20 * ROWS_PER_LOOK), data=st.data())
def test_every_row_is_looked_at_once_from_any_beginning(row_end: int, data: st.DataObject) -> None:
    first_look = data.draw(st.integers(min_value=0, max_value=look_count(row_end) - 1))
    ranges = list(looks(row_end, first_look))
    assert ranges[0][0] == first_look * ROWS_PER_LOOK
    assert all(0 < end - start <= ROWS_PER_LOOK for start, end in ranges)
    assert sorted(row for start, end in ranges for row in range(start, end)) == list(range(row_end))


def test_an_empty_table_needs_no_look() -> None:
    assert look_count(0) == 0
    assert list(looks(0, 0)) == []
