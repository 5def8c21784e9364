"""Deadlines: moments on the monotonic clock, in seconds, after which every wait is over."""

import math
import time

NO_DEADLINE = math.inf
"""For callers that wait as long as it takes."""


def remaining_s(deadline: float) -> float | None:
    """Seconds until a deadline for a wait, 0 after it; None where there is none."""
    return None if deadline == NO_DEADLINE else max(deadline - time.monotonic(), 0.0)
