"""How long a restoration takes, and how short any could be.

The model is the paper's pipeline (HCache, figures 5 and 8): one channel reads the layers in
the order in which they are used, one computes; what is projected or loaded waits for its
layer's read, the computation from tokens waits for nothing.
"""

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.source import Source


def predict_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """Duration of a restoration in seconds."""
    read_s = 0.0
    computed_s = schedule.count(Source.COMPUTE) * costs.compute_s
    for source in schedule.sources:
        if source is Source.KV:
            read_s += costs.io_kv_s
            computed_s = max(computed_s, read_s) + costs.load_s
        elif source is Source.HIDDEN:
            read_s += costs.io_hidden_s
            computed_s = max(computed_s, read_s) + costs.project_s
    return computed_s


def bound_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """The longer of all reads and all computation: no pipeline of this schedule is shorter."""
    return _bound_s(
        schedule.count(Source.COMPUTE),
        schedule.count(Source.HIDDEN),
        schedule.count(Source.KV),
        costs,
    )


def best_bounded(costs: LayerCosts, layer_count: int) -> LayerSchedule:
    """The schedule with the least bound of all, of the three sources in any shares."""
    counts = (
        (computed, hidden, layer_count - computed - hidden)
        for computed in range(layer_count + 1)
        for hidden in range(layer_count + 1 - computed)
    )
    computed, hidden, loaded = min(
        counts, key=lambda each: _bound_s(each[0], each[1], each[2], costs)
    )
    return LayerSchedule.of(
        (Source.COMPUTE, computed), (Source.HIDDEN, hidden), (Source.KV, loaded)
    )


def best_bound_s(costs: LayerCosts, layer_count: int) -> float:
    """The least bound of all schedules."""
    return bound_s(best_bounded(costs, layer_count), costs)


def _bound_s(computed: int, hidden: int, loaded: int, costs: LayerCosts) -> float:
    return max(
        hidden * costs.io_hidden_s + loaded * costs.io_kv_s,
        computed * costs.compute_s + hidden * costs.project_s + loaded * costs.load_s,
    )
