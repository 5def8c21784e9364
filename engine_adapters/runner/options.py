"""Values of command line options."""

import argparse


def at_least_one(text: str) -> int:
    """A whole number above 0; raises ArgumentTypeError, which argparse reports."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value
