"""Values of command line options."""

import argparse
import math

from engine_adapters.link.entry import TTL_S_MAX


def at_least_one(text: str) -> int:
    """A whole number above 0; raises ArgumentTypeError, which argparse reports."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def seconds(text: str) -> float:
    """Seconds, 0 or more; raises ArgumentTypeError, which argparse reports."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, 0 or more")
    return value


def time_to_live(text: str) -> int:
    """Whole seconds that an entry may last; raises ArgumentTypeError, which argparse reports."""
    value = at_least_one(text)
    if value > TTL_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is more than {TTL_S_MAX} seconds, a year")
    return value
