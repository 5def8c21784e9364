"""What one restoration made its layers from. Pure."""

from dataclasses import dataclass

from engine_adapters.restore import LayerCosts, LayerSchedule, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredLayers:
    """Layers of each source; a part of one where the spans of a history differ."""

    computed: float
    hidden: float
    kv: float

    @classmethod
    def of(cls, stored: LayerSchedule, recomputed: float) -> "RestoredLayers":
        """``recomputed`` of the first layers were computed, the others came as they are stored."""

        def loaded(source: Source) -> float:
            return sum(
                min(1.0, max(0.0, layer + 1 - recomputed))
                for layer, kind in enumerate(stored.sources)
                if kind is source
            )

        return cls(computed=recomputed, hidden=loaded(Source.HIDDEN), kv=loaded(Source.KV))

    def count(self, source: Source) -> float:
        """Layers of one source."""
        counts = {Source.COMPUTE: self.computed, Source.HIDDEN: self.hidden, Source.KV: self.kv}
        return counts[source]

    def computing_s(self, costs: LayerCosts) -> float:
        """All computation by these costs of a layer, without a wait for any read."""
        return (
            self.computed * costs.compute_s + self.hidden * costs.project_s + self.kv * costs.load_s
        )

    def __str__(self) -> str:
        """As a schedule, such as ``36 H + 4 KV``."""
        counts = {"H": self.hidden, "KV": self.kv, "RE": self.computed}
        return " + ".join(f"{count:.3g} {name}" for name, count in counts.items() if count)
