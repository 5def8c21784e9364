"""What was found in one setting, and the ratios that count. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from benchmarks.interleave import ratios
from benchmarks.restore.measured.beside import BesideCosts
from benchmarks.restore.measured.restored_layers import RestoredLayers
from benchmarks.restore.measured.scale import MeasuredSetting
from engine_adapters.restore import (
    LAYER_MODES,
    LayerCosts,
    LayerSchedule,
    Mode,
    best_bounded,
    bound_s,
)

Costs = TypeVar("Costs", LayerCosts, BesideCosts)
SINGLE = (Mode.RECOMPUTE, Mode.KV, Mode.HIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Seconds of each mode and the costs of one layer, one for each round.

    ``schedules`` is what was planned, and ``restored`` what each restoration made its layers
    from: it decides by its own rates how many it recomputes. ``recompute`` has one sample for all
    rounds: it is several times as slow as any other mode. ``waited_s`` is the part of the seconds
    of ``hcache`` in which it could compute nothing, ``made_s`` that in which it made layers.
    ``device_bytes_per_s`` is what the device was limited to, ``planned_project_s`` C_H when
    that was set. ``tokens_equal`` says whether all modes went on with the same tokens.
    """

    setting: MeasuredSetting
    schedules: Mapping[Mode, LayerSchedule]
    seconds: Mapping[Mode, tuple[float, ...]]
    waited_s: tuple[float, ...]
    made_s: tuple[float, ...]
    restored: Mapping[Mode, tuple[RestoredLayers, ...]]
    costs: tuple[LayerCosts, ...]
    beside: tuple[BesideCosts, ...]
    device_bytes_per_s: float
    hidden_bytes: int
    planned_project_s: float
    tokens_equal: bool

    @property
    def layer_count(self) -> int:
        """Of the model."""
        return self.schedules[Mode.HCACHE].layer_count

    @property
    def bounds(self) -> tuple[LayerSchedule, ...]:
        """The partition of the least bound, round by round."""
        return tuple(best_bounded(costs, self.layer_count) for costs in self.costs)

    @property
    def bounds_s(self) -> tuple[float, ...]:
        """The least bound of all partitions, by the costs of the same round."""
        pairs = zip(self.bounds, self.costs, strict=True)
        return tuple(bound_s(schedule, costs) for schedule, costs in pairs)

    def over_bound(self, mode: Mode) -> tuple[float, ...]:
        """Seconds over the bound of the same round."""
        return ratios(self._round_s(mode), self.bounds_s)

    def vs_bound(self, mode: Mode) -> float:
        """The median of the rounds."""
        return statistics.median(self.over_bound(mode))

    def over_beside(self) -> tuple[float, ...]:
        """Seconds of ``hcache`` over what its layers take where each side slows the other."""
        rounds = zip(self.restored[Mode.HCACHE], self.beside, self.costs, strict=True)
        durations = [beside.duration_s(layers, costs) for layers, beside, costs in rounds]
        return ratios(self.seconds[Mode.HCACHE], durations)

    def waited_over_bound(self) -> tuple[float, ...]:
        """What ``hcache`` waited for the store, over the bound of the same round."""
        return ratios(self.waited_s, self.bounds_s)

    def worked_over_costs(self) -> tuple[float, ...]:
        """What ``hcache`` did not wait, over what computing takes by the costs of the round."""
        worked = tuple(
            all_s - waited_s
            for all_s, waited_s in zip(self.seconds[Mode.HCACHE], self.waited_s, strict=True)
        )
        return ratios(worked, self._computing_s())

    def made_over_costs(self) -> tuple[float, ...]:
        """The part of that in which ``hcache`` made layers: the rest looks what has arrived."""
        return ratios(self.made_s, self._computing_s())

    def over(self, mode: Mode, peer: Mode) -> float:
        """Seconds over those of another mode: the median of the rounds."""
        return statistics.median(ratios(self._round_s(mode), self._round_s(peer)))

    def over_best_single(self, mode: Mode) -> float:
        """A mode over the best one of a single source, each as it was measured.

        Where both did the same work, what differs is noise (``noise``).
        """
        return max(self.over(mode, peer) for peer in SINGLE)

    def noise(self) -> tuple[float, ...]:
        """``hcache`` over other modes in all rounds in which both made their layers alike."""
        hcache_s, ours = self.seconds[Mode.HCACHE], self.restored[Mode.HCACHE]
        return tuple(
            our_s / peer_s
            for peer in LAYER_MODES
            if peer not in {Mode.HCACHE, Mode.RECOMPUTE}
            for our_s, peer_s, our, theirs in zip(
                hcache_s, self.seconds[peer], ours, self.restored[peer], strict=True
            )
            if our == theirs
        )

    def drift(self) -> tuple[float, ...]:
        """C_H of each round over that of the moment when the device's rate was set."""
        return tuple(costs.project_s / self.planned_project_s for costs in self.costs)

    def device_rate_reached(self) -> tuple[float, ...]:
        """Bytes/s at which hidden states were read, over the device's limit."""
        return tuple(
            self.hidden_bytes / costs.io_hidden_s / self.device_bytes_per_s for costs in self.costs
        )

    def _computing_s(self) -> list[float]:
        """What computing the layers of ``hcache`` takes by the costs of each round."""
        rounds = zip(self.restored[Mode.HCACHE], self.costs, strict=True)
        return [layers.computing_s(costs) for layers, costs in rounds]

    def _round_s(self, mode: Mode) -> tuple[float, ...]:
        """Seconds in each round."""
        if mode is Mode.RECOMPUTE:
            (seconds,) = self.seconds[mode]
            return (seconds,) * len(self.costs)
        return self.seconds[mode]


def rounds_of(kind: type[Costs], rounds: Mapping[str, Sequence[float]]) -> tuple[Costs, ...]:
    """Costs of each round, from one sequence for each field of ``kind``."""
    names = [field.name for field in fields(kind)]
    return tuple(
        kind(**dict(zip(names, values, strict=True)))
        for values in zip(*(rounds[name] for name in names), strict=True)
    )
