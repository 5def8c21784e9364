import argparse

import pytest

from engine_adapters.link.entry import TTL_S_MAX
from engine_adapters.runner.options import at_least_one, seconds, time_to_live


def test_numbers_that_an_option_takes() -> None:
    assert at_least_one("3") == 3
    assert seconds("0") == 0.0
    assert seconds("1.5") == 1.5
    assert time_to_live(str(TTL_S_MAX)) == TTL_S_MAX


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_what_is_no_number_above_0_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a whole number above 0"):
        at_least_one(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon", ""])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is no number of seconds"):
        seconds(text)


@pytest.mark.parametrize("text", ["0", "1.5", "for ever"])
def test_what_is_no_time_to_live_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a whole number above 0"):
        time_to_live(text)


def test_a_time_to_live_was_longer_than_an_entry_can_say() -> None:
    """Bug: 32 bits have no room for when it is over, which showed after everything was computed."""
    with pytest.raises(argparse.ArgumentTypeError, match=f"is more than {TTL_S_MAX} seconds"):
        time_to_live(str(TTL_S_MAX + 1))
