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


def computing_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """All computation of a restoration, without a wait for any read."""
    return (
        schedule.count(Source.COMPUTE) * costs.compute_s
        + schedule.count(Source.HIDDEN) * costs.project_s
        + schedule.count(Source.KV) * costs.load_s
    )


def reading_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """All reads of a restoration, one after the other."""
    return (
        schedule.count(Source.HIDDEN) * costs.io_hidden_s
        + schedule.count(Source.KV) * costs.io_kv_s
    )


def bound_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """The longer of all reads and all computation: no pipeline of this schedule is shorter."""
    return max(reading_s(schedule, costs), computing_s(schedule, costs))


def best_bounded(costs: LayerCosts, layer_count: int) -> LayerSchedule:
    """The schedule with the least bound of all, of the three sources in any shares."""
    counts = (
        (computed, hidden, layer_count - computed - hidden)
        for computed in range(layer_count + 1)
        for hidden in range(layer_count + 1 - computed)
    )
    schedules = (
        LayerSchedule.of((Source.COMPUTE, computed), (Source.HIDDEN, hidden), (Source.KV, loaded))
        for computed, hidden, loaded in counts
    )
    return min(schedules, key=lambda each: bound_s(each, costs))


def best_bound_s(costs: LayerCosts, layer_count: int) -> float:
    """The least bound of all schedules."""
    return bound_s(best_bounded(costs, layer_count), costs)
