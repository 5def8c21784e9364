"""Durations on a machine that may pause: what the product does is in every one of them."""

from collections.abc import Callable

ATTEMPTS = 3


def least(measure: Callable[[], float], *, below: float) -> float:
    """The least of up to ATTEMPTS measurements; one ``below`` the bound is the last.

    A virtual machine that stands still makes one of them large. What holds callers up in the
    product makes all of them large.
    """
    found = measure()
    for _ in range(ATTEMPTS - 1):
        if found < below:
            break
        found = min(found, measure())
    return found
