"""The window of a read."""

import pytest

from kvstored.store.read.window import Window


def test_one_run_always_fits() -> None:
    window = Window(1, [0, 1])
    assert window.take(0, 100, lane_count=2)
    assert not window.take(0, 1, lane_count=2)
    assert not window.take(1, 1, lane_count=2)


def test_no_more_is_in_flight_than_the_window() -> None:
    window = Window(10, [0])
    assert window.take(0, 6, lane_count=1)
    assert not window.take(0, 5, lane_count=1)
    assert window.take(0, 4, lane_count=1)


def test_lanes_have_even_shares() -> None:
    """A read with a window used to read one device after the other."""
    window = Window(10, [0, 1])
    assert [window.take(0, 2, lane_count=2) for _ in range(3)] == [True, True, False]
    assert [window.take(1, 2, lane_count=2) for _ in range(3)] == [True, True, False]


def test_a_lane_without_runs_leaves_its_share_to_the_others() -> None:
    window = Window(10, [0, 1])
    assert all(window.take(0, 5, lane_count=1) for _ in range(2))


def test_a_share_smaller_than_a_run_holds_one() -> None:
    window = Window(10, [0, 1, 2])
    assert window.take(0, 5, lane_count=3)
    assert window.take(1, 5, lane_count=3)
    assert not window.take(2, 5, lane_count=3)


@pytest.mark.parametrize("was_full", [True, False])
def test_a_release_tells_whether_a_lane_stands_still(was_full: bool) -> None:
    window = Window(10, [0, 1])
    assert window.take(0, 4, lane_count=2)
    assert window.take(1, 4, lane_count=2)
    if was_full:
        assert not window.take(1, 4, lane_count=2)
    assert window.release(0, 4) is was_full
    assert window.release(1, 4) is False
    assert window.take(0, 10, lane_count=1)
