"""From measured steps to the costs that the planner gets. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.least_squares import relative_costs


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A step with ``token_count`` tokens of a request behind ``first`` others of it."""

    first: int
    token_count: int
    duration_s: float


def fitted_cost(steps: Sequence[TimedStep]) -> ComputeCost:
    """The costs with the least squares of relative errors.

    None is negative, and a token costs something: a step that took longer by chance would
    else leave attention alone, and ten tokens in front would cost nothing. Raises ValueError
    where there are no steps.
    """
    if not steps:
        raise ValueError("costs cannot be fitted without a measured step")
    counted = np.array(
        [
            (1.0, step.token_count, step.token_count * (step.first + step.token_count / 2))
            for step in steps
        ]
    )
    durations_s = np.array([step.duration_s for step in steps])
    terms = list((counted / durations_s[:, None]).T)
    step_s, token_s, attention_s = relative_costs(terms, above_0=1, count_max=len(terms))
    return ComputeCost(step_s=step_s, token_s=token_s, attention_s=attention_s)
