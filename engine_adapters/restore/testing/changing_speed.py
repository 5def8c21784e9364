"""A speed that changes under a virtual clock: other work on the machine, a noisy device. Pure."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ChangingSpeed:
    """From ``edges_s[i]`` on work is done at ``speeds[i]`` times the usual speed, above 0.

    The first edge is 0 s; the last speed lasts.
    """

    edges_s: Sequence[float]
    speeds: Sequence[float]

    @classmethod
    def steady(cls) -> Self:
        """As usual all the time."""
        return cls((0.0,), (1.0,))

    @classmethod
    def changed(cls, at_s: float, speed: float) -> Self:
        """As usual until then."""
        return cls((0.0, at_s), (1.0, speed))

    @classmethod
    def bursts(
        cls,
        generator: random.Random,
        *,
        shortest_s: float,
        longest_s: float,
        speed: float,
        until_s: float,
    ) -> Self:
        """Beside work that comes and goes: ``speed`` about half of the time."""
        edges_s, speeds, now_s = [], [], 0.0
        is_beside = generator.random() < 1 / 2
        while now_s <= until_s:
            edges_s.append(now_s)
            speeds.append(speed if is_beside else 1.0)
            now_s += generator.uniform(shortest_s, longest_s)
            is_beside = not is_beside
        return cls(edges_s, speeds)

    def duration_s(self, usual_s: float, start_s: float) -> float:
        """How long takes from ``start_s`` on what usually takes ``usual_s``."""
        index = bisect_right(self.edges_s, start_s) - 1
        now_s, left_s = start_s, usual_s
        for edge_s, speed in zip(self.edges_s[index + 1 :], self.speeds[index:], strict=False):
            done_s = (edge_s - now_s) * speed
            if done_s >= left_s:
                return now_s + left_s / speed - start_s
            left_s -= done_s
            now_s = edge_s
        return now_s + left_s / self.speeds[-1] - start_s
