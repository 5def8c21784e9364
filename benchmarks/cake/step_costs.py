"""From measured steps to the costs that the planner gets. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine_adapters.restore.chunk_costs import ComputeCost


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A step with ``token_count`` tokens of a request behind ``first`` others of it."""

    first: int
    token_count: int
    duration_s: float


def fitted_cost(steps: Sequence[TimedStep]) -> ComputeCost:
    """The costs with the least squares of relative errors; none is negative.

    Raises ValueError where there are no steps.
    """
    if not steps:
        raise ValueError("costs cannot be fitted without a measured step")
    rows = np.array(
        [
            (1.0, step.token_count, step.token_count * (step.first + step.token_count / 2))
            for step in steps
        ]
    )
    durations_s = np.array([step.duration_s for step in steps])
    weighted = rows / durations_s[:, None]
    kept = [0, 1, 2]
    while True:
        found = np.linalg.lstsq(weighted[:, kept], np.ones(len(steps)), rcond=None)[0]
        if (found >= 0).all():
            break
        # Least squares with a bound: what would be below it is at it.
        del kept[int(found.argmin())]
    costs = [0.0, 0.0, 0.0]
    for place, value in zip(kept, found, strict=True):
        costs[place] = float(value)
    return ComputeCost(step_s=costs[0], token_s=costs[1], attention_s=costs[2])
