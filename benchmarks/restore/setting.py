"""One row of a figure: a model on a platform with a history, simulated in all modes."""

from dataclasses import dataclass, field

from benchmarks.restore.calibration import profile_of
from benchmarks.restore.claim import Claim
from benchmarks.restore.overlap import duration_s
from benchmarks.restore.platforms import Platform
from benchmarks.restore.shapes import ModelShape
from engine_adapters.restore import (
    LayerCosts,
    LayerSchedule,
    Mode,
    best_bound_s,
    predict_s,
    schedule_for,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is simulated, and what the paper says of it. ``why`` explains a miss."""

    shape: ModelShape
    platform: Platform
    token_count: int = 1024
    claims: tuple[Claim, ...] = field(default=())
    label: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """For the first column of a table."""
        gpus = f"{self.shape.gpu_count} x " if self.shape.gpu_count > 1 else ""
        machine = f"{gpus}{self.platform.name} {self.platform.storage}"
        if self.label:
            return f"{self.label}: {machine}"
        return f"{self.shape.name} {machine} {self.token_count}"

    @property
    def costs(self) -> LayerCosts:
        """Costs of one layer."""
        return profile_of(self.platform, self.shape).costs(self.token_count)

    def schedule(self, mode: Mode) -> LayerSchedule:
        """What the planner chooses."""
        return schedule_for(mode, self.costs, self.shape.layer_count)

    def tokens_per_s(self, mode: Mode) -> float:
        """Restored tokens of history divided by the time (section 6.2)."""
        return self.token_count / duration_s(self.schedule(mode), self.costs)

    def speedup(self, claim: Claim) -> float:
        """Ours, for what the claim compares."""
        return self.tokens_per_s(claim.mode) / self.tokens_per_s(claim.over)

    def over_bound(self, mode: Mode) -> float:
        """Planned duration divided by the least bound of any partition."""
        planned_s = predict_s(self.schedule(mode), self.costs)
        return planned_s / best_bound_s(self.costs, self.shape.layer_count)
