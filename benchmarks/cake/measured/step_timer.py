"""Times steps at several places of a history: what the planner is told of computing."""

import time

from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.cake.step_costs import TimedStep, fitted_cost
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.step import NullSink, Segment

_PLACES = 3
_COUNT_PARTS = (1, 4)
"""Steps of the whole budget and of a quarter of it."""


def measured_cost(
    model: SharedModel, *, tokens: int, token_budget: int, others_tokens: int
) -> ComputeCost:
    """Costs of computing so many tokens in such steps, others' tokens included.

    Every step is measured twice and the second one counts.
    """
    cache = model.make_cache(tokens)
    model.begin(others_tokens=others_tokens, others_stop_max=tokens + others_tokens)
    steps = []
    for count in sorted({max(1, min(token_budget, tokens) // part) for part in _COUNT_PARTS}):
        for first in sorted(
            {place * (tokens - count) // (_PLACES - 1) for place in range(_PLACES)}
        ):
            segment = Segment(
                request_id=-1, first_row=0, token_count=count, first_position=first, first_slot=0
            )
            for _ in range(2):
                started_s = time.perf_counter()
                model.forward([0] * count, [segment], cache=cache, sink=NullSink(), logit_rows=())
                duration_s = time.perf_counter() - started_s
            steps.append(TimedStep(first=first, token_count=count, duration_s=duration_s))
    return fitted_cost(steps)
