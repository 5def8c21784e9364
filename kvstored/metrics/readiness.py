"""Whether a daemon is ready for work. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from kvstored.metrics.snapshot import Snapshot


class Readiness(StrEnum):
    """What a daemon says of itself."""

    RECOVERING = "recovering"
    SERVING = "serving"
    DEGRADED = "degraded"
    """It serves, and something has failed that a restart or a repair must mend."""
    DRAINING = "draining"

    @property
    def takes_work(self) -> bool:
        """Whether clients should be sent to it."""
        return self in {Readiness.SERVING, Readiness.DEGRADED}


@dataclass(frozen=True, slots=True)
class ReadinessReport:
    """``reasons``: one sentence for each thing that has failed."""

    readiness: Readiness
    reasons: tuple[str, ...] = ()


def report_of(phase: Readiness, snapshot: Snapshot | None) -> ReadinessReport:
    """``phase`` is what is known without looking; ``snapshot`` is None where nobody looked."""
    if snapshot is None or phase is not Readiness.SERVING:
        return ReadinessReport(phase)
    if snapshot.is_drained:
        return ReadinessReport(
            Readiness.DRAINING, ("an operator drains it; `kvstored drain --resume` ends that",)
        )
    stats = snapshot.stats
    reasons = [f"{one.path} has failed; restart the daemon" for one in stats.devices if one.failed]
    if stats.index_failed:
        reasons.append("a write of the index has failed: nothing is stored until a restart")
    readiness = Readiness.DEGRADED if reasons else Readiness.SERVING
    return ReadinessReport(readiness, tuple(reasons))
