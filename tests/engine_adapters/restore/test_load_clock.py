"""The time that loads have been waited for."""

from engine_adapters.restore import LoadClock, LoadShares


def test_the_first_look_begins_the_time() -> None:
    clock = LoadClock()
    clock.advance(1000.0, load_count=1)
    assert clock.now_s == 0.0
    clock.advance(1001.5, load_count=1)
    assert clock.now_s == 1.5


def test_loads_that_run_together_share_the_time() -> None:
    """Else each of eight loads of a fast store would seem eight times as slow, and be given up."""
    clock = LoadClock()
    clock.advance(0.0, load_count=8)
    clock.advance(8.0, load_count=8)
    assert clock.now_s == 1.0


def test_without_a_load_the_time_is_that_of_one() -> None:
    clock = LoadClock()
    clock.advance(0.0, load_count=0)
    clock.advance(2.0, load_count=0)
    assert clock.now_s == 2.0


def test_the_time_between_two_loads_is_nobodys() -> None:
    clock = LoadClock()
    clock.advance(0.0, load_count=1)
    clock.advance(1.0, load_count=1)
    clock.exclude(0.5)
    clock.rest()
    clock.advance(61.0, load_count=1)
    assert clock.now_s == 1.0
    clock.advance(62.0, load_count=1)
    assert clock.now_s == 2.0


def test_what_was_waited_for_the_engine_is_excluded_once() -> None:
    clock = LoadClock()
    clock.advance(0.0, load_count=1)
    clock.exclude(0.75)
    clock.advance(1.0, load_count=1)
    assert clock.now_s == 0.25
    clock.exclude(9.0)
    clock.advance(2.0, load_count=1)
    clock.advance(3.0, load_count=1)
    assert clock.now_s == 1.25


def test_a_load_ends_once_and_leaves_its_share_to_the_others() -> None:
    now_s = 100.0
    shares = LoadShares()
    first = shares.begin(lambda: now_s)
    now_s += 1.0
    assert first() == 1.0
    second = shares.begin(lambda: now_s)
    now_s += 2.0
    assert first() == second() == 2.0
    second.end()
    second.end()
    now_s += 1.0
    assert first() == 3.0
    first.end()
    now_s += 60.0
    third = shares.begin(lambda: now_s)
    begun_s = third()
    now_s += 1.0
    assert third() - begun_s == 1.0
