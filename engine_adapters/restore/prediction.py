"""How long a restoration takes, and how short any could be.

The model is the paper's pipeline (HCache, figures 5 and 8): one channel reads the layers in
the order in which they are used, one computes; a projection waits for its layer's read, the
computation from tokens waits for nothing.
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
        elif source is Source.HIDDEN:
            read_s += costs.io_hidden_s
            computed_s = max(computed_s, read_s) + costs.project_s
    return max(read_s, computed_s)


def bound_s(schedule: LayerSchedule, costs: LayerCosts) -> float:
    """The longer of all reads and all computation: no pipeline of this schedule is shorter."""
    return _bound_s(
        schedule.count(Source.COMPUTE),
        schedule.count(Source.HIDDEN),
        schedule.count(Source.KV),
        costs,
    )


def best_bound_s(costs: LayerCosts, layer_count: int) -> float:
    """The least bound of all partitions of the layers among the three sources."""
    return min(
        _bound_s(computed, hidden, layer_count - computed - hidden, costs)
        for computed in range(layer_count + 1)
        for hidden in range(layer_count + 1 - computed)
    )


def _bound_s(computed: int, hidden: int, loaded: int, costs: LayerCosts) -> float:
    return max(
        hidden * costs.io_hidden_s + loaded * costs.io_kv_s,
        computed * costs.compute_s + hidden * costs.project_s,
    )
