"""What was found in one setting, and the ratios that count. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from benchmarks.interleave import ratios
from benchmarks.restore.measured.beside import BesideCosts
from benchmarks.restore.measured.scale import MeasuredSetting
from engine_adapters.restore import (
    LAYER_MODES,
    LayerCosts,
    LayerSchedule,
    Mode,
    best_bounded,
    bound_s,
    computing_s,
)

Costs = TypeVar("Costs", LayerCosts, BesideCosts)
SINGLE = (Mode.RECOMPUTE, Mode.KV, Mode.HIDDEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Seconds of each mode and the costs of one layer, one for each round.

    ``waited_s`` is the part of those of ``hcache`` in which it could compute nothing,
    ``recomputed_layers`` how many layers it recomputed.
    ``device_bytes_per_s`` is what the device was limited to, ``planned_project_s`` C_H when
    that was set. ``tokens_equal`` says whether all modes went on with the same tokens.
    """

    setting: MeasuredSetting
    schedules: Mapping[Mode, LayerSchedule]
    seconds: Mapping[Mode, tuple[float, ...]]
    waited_s: tuple[float, ...]
    recomputed_layers: tuple[float, ...]
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
        return ratios(self.seconds[mode], self.bounds_s)

    @property
    def hcache_vs_bound(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.over_bound(Mode.HCACHE))

    def over_beside(self) -> tuple[float, ...]:
        """Seconds of ``hcache`` over what its schedule takes where each side slows the other."""
        schedule = self.schedules[Mode.HCACHE]
        pairs = zip(self.beside, self.costs, strict=True)
        durations = [beside.duration_s(schedule, costs) for beside, costs in pairs]
        return ratios(self.seconds[Mode.HCACHE], durations)

    def waited_over_bound(self) -> tuple[float, ...]:
        """What ``hcache`` waited for the store, over the bound of the same round."""
        return ratios(self.waited_s, self.bounds_s)

    def worked_over_costs(self) -> tuple[float, ...]:
        """What ``hcache`` did not wait, over what computing takes by the costs of the round."""
        schedule = self.schedules[Mode.HCACHE]
        worked = (
            all_s - waited_s
            for all_s, waited_s in zip(self.seconds[Mode.HCACHE], self.waited_s, strict=True)
        )
        return ratios(tuple(worked), [computing_s(schedule, costs) for costs in self.costs])

    def over(self, mode: Mode, peer: Mode) -> float:
        """Seconds over those of another mode: the median of the rounds."""
        return statistics.median(ratios(self.seconds[mode], self.seconds[peer]))

    def over_best_single(self) -> float:
        """``hcache`` over the best mode of one source.

        1 against one with the same schedule: both do the same work, and what is measured of
        it is noise (``noise``).
        """
        return max(1.0 if self._is_alike(peer) else self.over(Mode.HCACHE, peer) for peer in SINGLE)

    def noise(self) -> tuple[float, ...]:
        """``hcache`` over each mode that has its schedule, in every round; empty without one."""
        return tuple(
            ratio
            for peer in LAYER_MODES
            if peer is not Mode.HCACHE and self._is_alike(peer)
            for ratio in ratios(self.seconds[Mode.HCACHE], self.seconds[peer])
        )

    def drift(self) -> tuple[float, ...]:
        """C_H of each round over that of the moment when the device's rate was set."""
        return tuple(costs.project_s / self.planned_project_s for costs in self.costs)

    def device_rate_reached(self) -> tuple[float, ...]:
        """Bytes/s at which hidden states were read, over the device's limit."""
        return tuple(
            self.hidden_bytes / costs.io_hidden_s / self.device_bytes_per_s for costs in self.costs
        )

    def _is_alike(self, peer: Mode) -> bool:
        return self.schedules[peer] == self.schedules[Mode.HCACHE]


def rounds_of(kind: type[Costs], rounds: Mapping[str, Sequence[float]]) -> tuple[Costs, ...]:
    """Costs of each round, from one sequence for each field of ``kind``."""
    names = [field.name for field in fields(kind)]
    return tuple(
        kind(**dict(zip(names, values, strict=True)))
        for values in zip(*(rounds[name] for name in names), strict=True)
    )
