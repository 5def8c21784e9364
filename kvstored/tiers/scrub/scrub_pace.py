"""When the scrub may read on, when its next pass begins, and in which order it looks at rows.

Pure: time comes in as seconds on any monotonic clock.
"""

from collections.abc import Iterator
from dataclasses import dataclass

REQUEST_COST_BYTES_MIN = 64 * 1024
"""A request counts as so many bytes at least: short ones cost time too, of device and daemon."""
ROWS_PER_LOOK = 256
"""Rows of the chunk table that are looked at under its lock at once: half a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubLimits:
    """How fast and how often everything is read. ``bytes_per_s`` counts all devices together.

    The first pass begins ``start_delay_s`` after the start, every other one
    ``pass_interval_s`` after the beginning of the one before, or when that has ended.
    """

    bytes_per_s: int
    start_delay_s: float
    pass_interval_s: float

    def next_pass_wait_s(self, pass_took_s: float) -> float:
        """From the end of a pass to the beginning of the next."""
        return max(self.pass_interval_s - pass_took_s, 0.0)


class Pace:
    """A line of time on which each request takes its bytes divided by the rate.

    In every interval of ``t`` seconds requests of at most ``bytes_per_s * t`` bytes and
    one more may begin: idle time is not saved up, so there is no burst after it.
    """

    def __init__(self, bytes_per_s: float) -> None:
        if bytes_per_s <= 0:
            raise ValueError(f"a rate must be above 0 bytes/s, not {bytes_per_s}")
        self._bytes_per_s = bytes_per_s
        self._free_at_s = 0.0

    def take(self, byte_count: int, now_s: float) -> float:
        """Takes the next place on the line; the seconds until the request may begin."""
        begin_s = max(self._free_at_s, now_s)
        self._free_at_s = begin_s + max(byte_count, REQUEST_COST_BYTES_MIN) / self._bytes_per_s
        return begin_s - now_s


def look_count(row_end: int) -> int:
    """How many looks of ``ROWS_PER_LOOK`` rows show all rows below ``row_end``."""
    return -(-row_end // ROWS_PER_LOOK)


def looks(row_end: int, first_look: int) -> Iterator[tuple[int, int]]:
    """(first row, end) of every look: from ``first_look`` to the last, then those before it."""
    count = look_count(row_end)
    for number in range(first_look, first_look + count):
        start = number % count * ROWS_PER_LOOK
        yield start, min(start + ROWS_PER_LOOK, row_end)
