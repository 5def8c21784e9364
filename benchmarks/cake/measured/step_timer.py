"""Times steps at several places of a history: what the planner knows of computing."""

import statistics
import time

from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.cake.step_costs import TimedStep, fitted_cost
from engine_adapters.restore import ComputeCost
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.step import NullSink, Segment

_PLACES = 3
_COUNT_PARTS = (1, 4)
"""Steps of the whole budget and of a quarter of it."""
_LAST_STEPS = 5


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
            for _ in range(2):
                duration_s = _step_s(model, cache, first, count)
            steps.append(TimedStep(first=first, token_count=count, duration_s=duration_s))
    return fitted_cost(steps)


def last_step_s(model: SharedModel, *, tokens: int, others_tokens: int) -> float:
    """The step of one token behind so many, beside others' tokens: the median."""
    cache = model.make_cache(tokens + 1)
    model.begin(others_tokens=others_tokens, others_stop_max=tokens + others_tokens)
    return statistics.median(_step_s(model, cache, tokens, 1) for _ in range(_LAST_STEPS))


def _step_s(model: SharedModel, cache: KvCache, first: int, count: int) -> float:
    segment = Segment(
        request_id=-1, first_row=0, token_count=count, first_position=first, first_slot=0
    )
    started_s = time.perf_counter()
    model.forward([0] * count, [segment], cache=cache, sink=NullSink(), logit_rows=())
    return time.perf_counter() - started_s
