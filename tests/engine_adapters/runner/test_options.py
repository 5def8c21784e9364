import argparse

import pytest

from engine_adapters.runner.options import at_least_one, seconds


def test_numbers_that_an_option_takes() -> None:
    assert at_least_one("3") == 3
    assert seconds("0") == 0.0
    assert seconds("1.5") == 1.5


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", ""])
def test_what_is_no_number_above_0_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is not a whole number above 0"):
        at_least_one(text)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "soon", ""])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}' is no number of seconds"):
        seconds(text)
