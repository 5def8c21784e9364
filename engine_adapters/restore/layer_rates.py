"""What a layer costs lately, and how many of the first layers are recomputed by that."""

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.layer_schedule import LayerSchedule
from engine_adapters.restore.prediction import predict_s
from engine_adapters.restore.recent import RecentMean
from engine_adapters.restore.source import Source

FASTER = 1.5
"""Times as fast as measured that reads may be when a history is restored, and its layout still has
what the best schedule needs: with more of it more would be stored for what is seldom wanted."""

LAYERS_EXPECTED = 1.0
"""Layers of a history that weigh as much as what was expected of them."""
LAYERS_REMEMBERED = 8.0
"""Layers of a history that tell how long one takes."""

LEAST_S = 1e-12
"""Of a cost that was measured as nothing."""


class LayerRates:
    """Begins with the costs of a profile, and is then measured by every restoration that shares it.

    ``costs`` are those of one layer for ``token_count`` tokens; ``hidden_bytes`` and ``kv_bytes``
    those that a read moves for one token in one layer, on average where a codec made them fewer.
    What is measured while the other side works as well contains
    how much the two slow each other down, which a profile does not. One thread adds; another
    one may ask.
    """

    __slots__ = ("_bytes", "_read_s", "_recompute_s", "_take_s", "_token_count")

    def __init__(
        self, costs: LayerCosts, token_count: int, *, hidden_bytes: float, kv_bytes: float
    ) -> None:
        self._token_count = token_count
        self._bytes = {Source.HIDDEN: hidden_bytes, Source.KV: kv_bytes}
        self._recompute_s = _mean(costs.compute_s, token_count)
        self._take_s = {
            Source.HIDDEN: _mean(costs.project_s, token_count),
            Source.KV: _mean(costs.load_s, token_count),
        }
        self._read_s = _mean(costs.io_hidden_s, token_count * hidden_bytes)

    def recomputed(self, duration_s: float, *, layer_tokens: int) -> None:
        """So many tokens, each in one layer, were computed from the tokens."""
        self._recompute_s.add(duration_s, units=layer_tokens)

    def taken(self, source: Source, duration_s: float, *, layer_tokens: int) -> None:
        """So many tokens, each in one layer, were projected (HIDDEN) or copied (KV)."""
        self._take_s[source].add(duration_s, units=layer_tokens)

    def read(self, duration_s: float, *, byte_count: int) -> None:
        """So many bytes came while nothing but the store kept more from coming."""
        self._read_s.add(duration_s, units=byte_count)

    def costs(self, token_count: int | None = None) -> LayerCosts:
        """Of one layer for so many tokens, or for as many as was expected."""
        tokens = self._token_count if token_count is None else token_count
        read_s = self._read_s.value
        return LayerCosts(
            io_hidden_s=max(LEAST_S, tokens * self._bytes[Source.HIDDEN] * read_s),
            io_kv_s=max(LEAST_S, tokens * self._bytes[Source.KV] * read_s),
            compute_s=max(LEAST_S, tokens * self._recompute_s.value),
            project_s=max(LEAST_S, tokens * self._take_s[Source.HIDDEN].value),
            load_s=tokens * self._take_s[Source.KV].value,
        )

    def recomputed_layers(self, stored: LayerSchedule) -> int:
        """How many of the first layers to recompute, at least those that are not stored.

        Any number of the layers that are stored can be recomputed all the same (HCache, section
        4.1.2, with the costs of now instead of those of the profile).
        """
        costs = self.costs()
        least = stored.count(Source.COMPUTE)

        def duration_s(count: int) -> float:
            schedule = LayerSchedule(
                (Source.COMPUTE,) * count + stored.sources[count:],
            )
            return predict_s(schedule, costs)

        return min(range(least, stored.layer_count), key=duration_s)


def storing_schedule(planned: LayerSchedule, of_faster: LayerSchedule) -> LayerSchedule:
    """What to store where ``planned`` is what the costs ask for: all that may be wanted of it.

    ``of_faster`` is planned for reads FASTER times as fast. Layers that both recompute are not
    stored; those that only ``planned`` recomputes are stored as the first layer is that it loads.
    """
    count = planned.count(Source.COMPUTE)
    least = min(count, of_faster.count(Source.COMPUTE))
    if least == count or count == planned.layer_count:
        return planned
    kept = (planned.sources[count],) * (count - least)
    return LayerSchedule((Source.COMPUTE,) * least + kept + planned.sources[count:])


def with_faster_reads(costs: LayerCosts) -> LayerCosts:
    """Where reads take FASTER times less."""
    return LayerCosts(
        io_hidden_s=costs.io_hidden_s / FASTER,
        io_kv_s=costs.io_kv_s / FASTER,
        compute_s=costs.compute_s,
        project_s=costs.project_s,
        load_s=costs.load_s,
    )


def _mean(layer_s: float, units: float) -> RecentMean:
    return RecentMean(
        layer_s / units, weight=LAYERS_EXPECTED * units, memory=LAYERS_REMEMBERED * units
    )
