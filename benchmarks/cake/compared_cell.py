"""One cell of the paper's tables beside what our simulation gives for it. Pure."""

from dataclasses import dataclass

from benchmarks.cake.paper_tables import Cell
from benchmarks.cake.virtual_workload import Simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """The paper's two speed-ups (``cell``) and our times (``ours``)."""

    cell: Cell
    ours: Simulated

    @property
    def relative_differences(self) -> tuple[float, float]:
        """Of our speed-ups from the paper's, absolute."""
        return self._differences(self.ours.cake_s)

    @property
    def paper_algorithm_differences(self) -> tuple[float, float]:
        """The same for the paper's algorithm: how well our costs describe its servers."""
        return self._differences(self.ours.paper_algorithm_s)

    def _differences(self, duration_s: float) -> tuple[float, float]:
        return (
            abs(self.ours.load_s / duration_s / self.cell.over_load - 1),
            abs(self.ours.compute_s / duration_s / self.cell.over_compute - 1),
        )
