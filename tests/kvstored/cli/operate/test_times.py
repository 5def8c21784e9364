import argparse

import pytest

from kvstored.cli.operate.times import seconds, time_text, timeout


@pytest.mark.parametrize(
    ("text", "value_s"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86_400)]
)
def test_times(text: str, value_s: float) -> None:
    assert seconds(text) == value_s


@pytest.mark.parametrize("text", ["", "0", "-1s", "1w", "5 m", "soon"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="no time"):
        seconds(text)


def test_calls_do_not_wait_for_ever() -> None:
    assert timeout("10m") == 600
    with pytest.raises(argparse.ArgumentTypeError, match="more than 600"):
        timeout("11m")


@pytest.mark.parametrize(
    ("value_s", "text"), [(0.2, "0 s"), (61, "1 m 1 s"), (7200, "2 h"), (90_061, "1 d 1 h")]
)
def test_times_for_people(value_s: float, text: str) -> None:
    assert time_text(value_s) == text
