"""What answers say of the ways to link. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, median

from rich.table import Table

from benchmarks.pic.facts.library import TOLD_KINDS, Kind
from benchmarks.pic.facts.ways import Answer
from benchmarks.report import Series

FIGURES = (
    "f1_full",
    "f1_naive",
    "f1_attnlink16_over_full",
    "f1_cacheblend15_over_full",
    "f1_best_at_equal_tokens",
    "semantic_minus_fixed_points",
)
EQUAL_TOKENS = ("attnlink16", "query16", "split16", "sink_attnlink16")
"""Ways that compute as many tokens of entries as ``attnlink16``."""
NEEDED = ("full", "naive", "cacheblend15", *EQUAL_TOKENS, "sink", "fixed_attnlink16")
"""Without these ways there are not all figures; ``sink`` computes as few tokens as ``naive``."""
LEAST_F1 = {Kind.ONE_HOP: 0.90, Kind.TWO_HOPS: 0.60}
"""Of ``full``; with less, the model reads too badly to tell ways apart."""
NAIVE_LOSS_MIN = 0.15
ATTENTION_MIN = 0.20
"""Which share of attention the first tokens of entries draw by ``naive``, in some layer."""


@dataclass(frozen=True, slots=True)
class Judged:
    """``answers`` of each way to the same questions, of all kinds.

    ``attention`` has for ``naive`` and ``full`` the share of all attention in each layer that goes
    to the first tokens of entries.
    """

    answers: Mapping[str, Sequence[Answer]]
    attention: Mapping[str, Sequence[float]]

    def f1(self, way: str, kind: Kind | None = None) -> float:
        """Answers are one word, so it is which share of them is right.

        The mean of all kinds that documents answer: who is asked and knows nothing says so.
        """
        if kind is None:
            return mean(self.f1(way, each) for each in TOLD_KINDS)
        return mean(each.is_right for each in self.answers[way] if each.kind is kind)

    @property
    def best_at_equal_tokens(self) -> str:
        """The way of EQUAL_TOKENS that answers most; the first of several.

        Chosen by the answers that it is then credited with: with few questions it looks too good.
        """
        return max(EQUAL_TOKENS, key=self.f1)

    def untelling(self) -> str:
        """Why this setting cannot tell ways apart, in one sentence; empty where it can."""
        for kind, least in LEAST_F1.items():
            if self.f1("full", kind) < least:
                return (
                    f"the model answers {self.f1('full', kind):.2f} of {kind.value} questions "
                    f"when everything is computed, less than {least}: it reads too badly"
                )
        loss = self.f1("full") - self.f1("naive")
        if loss < NAIVE_LOSS_MIN:
            return f"naive links lose {100 * loss:.1f} points, less than {100 * NAIVE_LOSS_MIN:.0f}"
        most = max(self.attention["naive"])
        if most < ATTENTION_MIN:
            return (
                f"first tokens of entries draw {most:.2f} of the attention in naive links, less "
                f"than {ATTENTION_MIN}"
            )
        return ""

    def series(self) -> tuple[Series, ...]:
        """The figures, and what they are made of."""
        full = self.f1("full")
        figures = {
            "f1_full": full,
            "f1_naive": self.f1("naive"),
            "f1_attnlink16_over_full": self.f1("attnlink16") / full if full else 0.0,
            "f1_cacheblend15_over_full": self.f1("cacheblend15") / full if full else 0.0,
            "f1_best_at_equal_tokens": self.f1(self.best_at_equal_tokens),
            "semantic_minus_fixed_points": 100
            * (self.f1("attnlink16") - self.f1("fixed_attnlink16")),
        }
        units = {"semantic_minus_fixed_points": "points"}
        found = [
            Series(key=key, unit=units.get(key, ""), samples=(value,), is_figure=True)
            for key, value in figures.items()
        ]
        for way, answers in self.answers.items():
            for kind in Kind:
                key = f"judged_{way}_{kind.value}_f1"
                found.append(Series(key=key, unit="", samples=(self.f1(way, kind),)))
            times = tuple(each.ttft_s for each in answers)
            found.append(Series(key=f"judged_{way}_ttft_s", unit="s", samples=times))
            tokens = tuple(float(each.computed_tokens) for each in answers)
            found.append(Series(key=f"judged_{way}_computed", unit="tokens", samples=tokens))
        for way, shares in self.attention.items():
            for layer, share in enumerate(shares):
                key = f"first_token_attention_{way}_layer_{layer}"
                found.append(Series(key=key, unit="", samples=(share,)))
        return tuple(found)

    def table(self) -> Table:
        """A row for each way, those that compute least first."""
        count = len(next(iter(self.answers.values())))
        table = Table(
            box=None,
            pad_edge=False,
            header_style="bold",
            title=f"{count} questions; best at equal tokens: {self.best_at_equal_tokens}",
        )
        for column in ("way", "F1", *(kind.value for kind in Kind), "computed", "TTFT ms"):
            table.add_column(column, justify="left" if column == "way" else "right")
        for way in sorted(self.answers, key=self._computed):
            table.add_row(
                way,
                f"{self.f1(way):.3f}",
                *(f"{self.f1(way, kind):.3f}" for kind in Kind),
                f"{self._computed(way):.0f}",
                f"{1e3 * median(each.ttft_s for each in self.answers[way]):.1f}",
            )
        return table

    def _computed(self, way: str) -> float:
        return median(each.computed_tokens for each in self.answers[way])
