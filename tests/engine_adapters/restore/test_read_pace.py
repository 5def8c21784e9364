"""How fast bytes come lately: bursts and a first answer say little, silence says something."""

import pytest

from engine_adapters.restore import ReadPace


def new_pace(now_s: float = 0.0) -> ReadPace:
    return ReadPace(memory_bytes=100, evidence_s=1.0, now_s=now_s)


def test_nothing_is_known_before_anything_came() -> None:
    pace = new_pace()
    pace.observe(50.0, 0)
    assert pace.remaining_s(10) is None


def test_one_early_arrival_tells_nothing_and_after_a_while_something() -> None:
    pace = new_pace()
    pace.observe(0.5, 10)
    assert pace.remaining_s(100) is None
    pace.observe(1.0, 10)
    assert pace.remaining_s(100) == pytest.approx(10.0)


def test_the_pace_is_that_of_the_last_bytes() -> None:
    pace = new_pace()
    pace.observe(10.0, 100)
    assert pace.remaining_s(100) == pytest.approx(10.0)
    pace.observe(11.0, 150)
    assert pace.remaining_s(100) == pytest.approx(6.0)
    pace.observe(11.5, 650)
    assert pace.remaining_s(100) == pytest.approx(0.1)


def test_a_silence_makes_it_slow() -> None:
    pace = new_pace()
    pace.observe(0.1, 100)
    pace.observe(0.5, 100)
    assert pace.remaining_s(200) == pytest.approx(1.0)


def test_a_reader_with_nothing_to_read_is_not_silent() -> None:
    pace = new_pace(5.0)
    pace.observe(5.1, 100)
    pace.observe(60.0, 100, is_reading=False)
    assert pace.remaining_s(100) == pytest.approx(0.1)
    pace.observe(60.1, 200)
    assert pace.remaining_s(100) == pytest.approx(0.1)


def test_time_in_which_nobody_looked_is_no_silence() -> None:
    pace = new_pace()
    pace.observe(1.0, 100)
    pace.pass_over(20.0)
    assert pace.remaining_s(100) == pytest.approx(1.0)
    pace.observe(21.0, 100)
    assert pace.remaining_s(100) == pytest.approx(1.0)
    pace.observe(22.0, 100)
    assert pace.remaining_s(100) == pytest.approx(2.0)
