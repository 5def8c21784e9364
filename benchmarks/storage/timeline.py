"""How the bytes of one client grew over time, and what several did at the same time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bytes so far at moments of the machine's monotonic clock, in seconds.

    ``points`` are ordered; the first is the start, the last the end. In between the
    bytes grow evenly from point to point.
    """

    points: tuple[tuple[float, float], ...]

    @property
    def start(self) -> float:
        """When the first transfer began."""
        return self.points[0][0]

    @property
    def end(self) -> float:
        """When the last one was complete."""
        return self.points[-1][0]

    @property
    def byte_count(self) -> float:
        """All bytes."""
        return self.points[-1][1]

    def rate(self, start: float, end: float) -> float:
        """Bytes per second between two moments from ``start`` to ``end`` of the timeline."""
        moments, counts = zip(*self.points, strict=True)
        first, last = np.interp((start, end), moments, counts)
        return float(last - first) / (end - start)


def overlap(timelines: Sequence[Timeline]) -> tuple[float, float]:
    """From when until when all of them ran; raises ValueError when they never all did."""
    start = max(timeline.start for timeline in timelines)
    end = min(timeline.end for timeline in timelines)
    if end <= start:
        raise ValueError("the clients did not run at the same time")
    return start, end
