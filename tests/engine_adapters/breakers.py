"""Breakers that go by no real clock: how busy the machine is says nothing of a daemon."""

from itertools import count

from engine_adapters.breaker import Breaker


def calm() -> Breaker:
    """Of a daemon whose every call takes no time."""
    return Breaker(clock=lambda: 0.0)


def alarmed() -> Breaker:
    """Every call is too slow, by a clock that goes on a millisecond whenever it is read.

    So the pause after the first call lasts for some thousand readings.
    """
    return Breaker(slow_s=0, clock=count(0.0, 1e-3).__next__)
