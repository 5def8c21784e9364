"""Which layers are computed, loaded or projected."""

from collections.abc import Iterator

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.mode import Mode
from engine_adapters.restore.partition import Partition, hcache_partition, hybrid_partition
from engine_adapters.restore.prediction import predict_s
from engine_adapters.restore.source import Source

_SINGLE = {
    Mode.RECOMPUTE: Source.COMPUTE,
    Mode.KV: Source.KV,
    Mode.HIDDEN: Source.HIDDEN,
}
_PAIRS = (
    (Source.COMPUTE, Source.KV),
    (Source.COMPUTE, Source.HIDDEN),
    (Source.HIDDEN, Source.KV),
)
"""Which source takes the first layers and which the others."""


def schedule_for(mode: Mode, costs: LayerCosts, layer_count: int) -> LayerSchedule:
    """The source of each of ``layer_count`` layers.

    Raises ValueError for less than 1, and for CAKE, which divides tokens (``plan_cake``). AUTO
    is the best division of the layers. Hidden states help only where they are smaller than keys
    and values. Where reading them takes as long or longer (grouped heads), ``hcache`` loads keys
    and values, and ``auto`` uses no hidden states either.
    """
    if layer_count < 1:
        raise ValueError(f"a model has at least 1 layer, not {layer_count}")
    if mode is Mode.CAKE:
        raise ValueError("mode cake divides the tokens of a history, not its layers")
    if mode is Mode.HCACHE:
        if costs.io_hidden_s >= costs.io_kv_s:
            return LayerSchedule.of((Source.KV, layer_count))
        return hcache_schedule(costs, layer_count)
    if mode is Mode.NAIVE_HYBRID:
        return _ordered(Source.KV, hybrid_partition(costs, layer_count))
    if mode is Mode.AUTO:
        return best_schedule(costs, layer_count)
    return LayerSchedule.of((_SINGLE[mode], layer_count))


def hcache_schedule(costs: LayerCosts, layer_count: int) -> LayerSchedule:
    """HCache, section 4.1.2, and nothing else: its formulas even where they do not help."""
    return _ordered(Source.HIDDEN, hcache_partition(costs, layer_count))


def best_schedule(costs: LayerCosts, layer_count: int) -> LayerSchedule:
    """The split of at most two sources with the shortest predicted duration.

    Every mode's schedule is such a split, so none is predicted to be faster. Two sources
    suffice: with two channels to balance, a third can only fill a fraction of a layer.
    """
    return min(_splits(layer_count), key=lambda schedule: predict_s(schedule, costs))


def _splits(layer_count: int) -> Iterator[LayerSchedule]:
    for first, second in _PAIRS:
        for count in range(layer_count + 1):
            yield LayerSchedule.of((first, count), (second, layer_count - count))


def _ordered(main: Source, partition: Partition) -> LayerSchedule:
    """Computed layers first, loaded ones last."""
    counts = ((main, partition.main_count), (partition.other, partition.other_count))
    return LayerSchedule.of(*(counts[::-1] if partition.other is Source.COMPUTE else counts))
