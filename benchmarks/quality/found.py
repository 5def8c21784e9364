"""What was found: figures, and tables like the paper's. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from benchmarks.quality.way import Way
from benchmarks.report import Series, Summary

FIGURES = ("ppl_as_over_tt", "ppl_nkvt_over_tt", "retrieval_as_minus_tt_points")
NKVT_OVER_TT_MIN = 2.0
"""Less, and the setting cannot tell whether positions were handled rightly."""


@dataclass(frozen=True, slots=True)
class Found:
    """``perplexities``: of each text by way. ``hits``: for each question whether it was answered.

    Each has at least one text, or question, and all ways.
    """

    perplexities: Mapping[str, Mapping[Way, float]]
    hits: Mapping[Way, tuple[bool, ...]]

    @property
    def can_tell(self) -> bool:
        """Whether wrong positions show in every text."""
        return min(self.ratios(Way.NKVT)) >= NKVT_OVER_TT_MIN

    def ratios(self, way: Way) -> tuple[float, ...]:
        """Perplexities over those of TT, of each text."""
        return tuple(by_way[way] / by_way[Way.TT] for by_way in self.perplexities.values())

    def points(self, way: Way) -> float:
        """Which part of the questions was answered, in percent."""
        return 100.0 * sum(self.hits[way]) / len(self.hits[way])

    def series(self) -> tuple[Series, ...]:
        """The figures, of the worst text each, and what they are made of."""
        texts = [
            Series(key=f"ppl_{name}_{way.value}", unit="", samples=(value,))
            for name, by_way in self.perplexities.items()
            for way, value in by_way.items()
        ]
        answers = [
            Series(key=f"retrieval_{way.value}", unit="%", samples=(self.points(way),))
            for way in Way
        ]
        return (
            Series(
                key="ppl_as_over_tt",
                unit="x",
                samples=self.ratios(Way.AS),
                summary=Summary.MOST,
                is_figure=True,
            ),
            Series(
                key="ppl_nkvt_over_tt",
                unit="x",
                samples=self.ratios(Way.NKVT),
                summary=Summary.LEAST,
                is_figure=True,
            ),
            Series(
                key="retrieval_as_minus_tt_points",
                unit="points",
                samples=(self.points(Way.AS) - self.points(Way.TT),),
                is_figure=True,
            ),
            *texts,
            *answers,
        )

    def tables(self) -> tuple[Table, Table]:
        """Perplexity of each text and share of right answers, by way (tables 1 and 2)."""
        perplexity = _table("perplexity after the first overflow", "text")
        for name, by_way in self.perplexities.items():
            perplexity.add_row(name, *(f"{by_way[way]:.2f}" for way in Way))
        answers = _table("records recalled after the overflow, %", "questions")
        count = len(self.hits[Way.TT])
        answers.add_row(str(count), *(f"{self.points(way):.1f}" for way in Way))
        return perplexity, answers


def _table(title: str, first: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title)
    table.add_column(first)
    for way in Way:
        table.add_column(way.name, justify="right")
    return table
