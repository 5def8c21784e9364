"""A speed that is drawn again and again (Cake, section 5.7). Pure."""

import math
import random
from collections.abc import Iterator


class Fluctuation:
    """A number from 0 to ``most``, uniform, drawn again every ``interval_s`` of a clock.

    Equal seeds give equal numbers at equal times, in whatever process.
    """

    def __init__(self, seed: int, *, most: float, interval_s: float) -> None:
        self._seed = seed
        self._most = most
        self._interval_s = interval_s

    def value(self, now_s: float) -> float:
        """The number at a time."""
        return self._drawn(math.floor(now_s / self._interval_s))

    def sum_between(self, first_s: float, stop_s: float) -> float:
        """The integral from ``first_s`` to ``stop_s``, which is not before it."""
        total = 0.0
        stretches = self._stretches(first_s)
        while True:
            value, start_s, end_s = next(stretches)
            if end_s >= stop_s:
                return total + value * (stop_s - start_s)
            total += value * (end_s - start_s)

    def reached_s(self, first_s: float, amount: float) -> float:
        """When the integral from ``first_s`` on is ``amount``, which is at least 0."""
        stretches = self._stretches(first_s)
        while True:
            value, start_s, end_s = next(stretches)
            held = value * (end_s - start_s)
            if held >= amount:
                return start_s + (amount / value if amount else 0.0)
            amount -= held

    def _stretches(self, first_s: float) -> Iterator[tuple[float, float, float]]:
        """Value, start and end of the stretches of equal value from ``first_s`` on."""
        index = math.floor(first_s / self._interval_s)
        start_s = first_s
        while True:
            index += 1
            end_s = index * self._interval_s
            yield self._drawn(index - 1), start_s, end_s
            start_s = end_s

    def _drawn(self, index: int) -> float:
        return self._most * random.Random(f"{self._seed} {index}").random()
