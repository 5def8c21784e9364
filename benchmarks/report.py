"""What a benchmark found: samples, one value for each series, a table and JSON. Pure."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rich.table import Table

from kvstored.evidence import Provenance


class Summary(Enum):
    """How one value comes out of the samples."""

    MEDIAN = "median"
    LEAST = "least"
    MOST = "most"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Samples of one quantity in the order in which they were taken; at least one.

    ``is_figure`` marks those whose value is published under the stable ``key``.
    """

    key: str
    unit: str
    samples: tuple[float, ...]
    summary: Summary = Summary.MEDIAN
    is_figure: bool = False

    def __post_init__(self) -> None:
        if not self.samples:
            raise ValueError(f"the series {self.key} has no samples")

    @property
    def value(self) -> float:
        """The one number that stands for the samples."""
        if self.summary is Summary.LEAST:
            return min(self.samples)
        if self.summary is Summary.MOST:
            return max(self.samples)
        return statistics.median(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one run, and where it comes from.

    ``parts`` are those that ran when not all did.
    """

    benchmark: str
    quick: bool
    provenance: Provenance
    series: tuple[Series, ...]
    parts: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """The published values."""
        return {series.key: series.value for series in self.series if series.is_figure}

    def check_figures(self, promised: Sequence[str], *, may_leave_out: bool = False) -> None:
        """Raises ValueError unless exactly the promised figures were measured, or some of them."""
        is_kept = set(self.figures) <= set(promised) if may_leave_out else False
        if not is_kept and sorted(self.figures) != sorted(promised):
            raise ValueError(
                f"{self.benchmark} promises the figures {sorted(promised)} and measured "
                f"{sorted(self.figures)}"
            )

    def to_json(self) -> str:
        """Provenance, figures and all samples. ``parts`` only when not all ran."""
        document = {
            "benchmark": self.benchmark,
            "quick": self.quick,
            **({"parts": list(self.parts)} if self.parts else {}),
            **self.provenance.to_document(),
            "figures": self.figures,
            "samples": {series.key: list(series.samples) for series in self.series},
        }
        return json.dumps(document, indent=2) + "\n"

    def table(self) -> Table:
        """One row for each series, figures first."""
        caption = f"only: {', '.join(self.parts)}" if self.parts else None
        title = self.provenance.command
        table = Table(box=None, pad_edge=False, header_style="bold", title=title, caption=caption)
        table.add_column("", min_width=max(len(series.key) for series in self.series))
        table.add_column("unit")
        for column in ("value", "median", "min", "max", "samples"):
            table.add_column(column, justify="right")
        for series in sorted(self.series, key=lambda series: not series.is_figure):
            samples = series.samples
            table.add_row(
                series.key,
                series.unit,
                *(
                    f"{number:.3f}"
                    for number in (
                        series.value,
                        statistics.median(samples),
                        min(samples),
                        max(samples),
                    )
                ),
                str(len(samples)),
                style="bold" if series.is_figure else "",
            )
        return table
