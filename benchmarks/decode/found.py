"""What was found: durations of steps, and the overheads that come of them. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.report import Series, Summary

OFF, TWO_STAGE, MIXED, DIRECT = "off", "two_stage", "two_stage_mixed", "direct"
VARIANTS = (OFF, TWO_STAGE, MIXED, DIRECT)
"""Nothing is saved; hidden states in two stages; the same with one layer as keys and values; hidden
states written by the engine's thread."""
SAVING = VARIANTS[1:]
P99_CUTS = 100


@dataclass(slots=True)
class Steps:
    """Seconds of the measured steps of one batch: by variant, one list for each cycle.

    ``all_s`` has the sum over all steps of a variant, measured or not.
    """

    cycles: dict[str, list[list[float]]] = field(
        default_factory=lambda: {name: [] for name in VARIANTS}
    )
    all_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VARIANTS, 0.0))

    def medians_s(self, variant: str) -> list[float]:
        """Of each cycle."""
        return [statistics.median(cycle) for cycle in self.cycles[variant]]

    def overheads_pct(self, variant: str) -> tuple[float, ...]:
        """Of each cycle, over the steps of the same cycle that are not saved."""
        pairs = zip(self.medians_s(variant), self.medians_s(OFF), strict=True)
        return tuple(100 * (ours / off - 1) for ours, off in pairs)

    def overhead_median_pct(self, variant: str) -> float:
        """The median of all cycles."""
        return statistics.median(self.overheads_pct(variant))

    def overhead_p99_pct(self, variant: str) -> float:
        """Of the 99th percentile of all steps, over that of the steps that are not saved."""
        return 100 * (self._p99_s(variant) / self._p99_s(OFF) - 1)

    def relative(self, variant: str) -> list[float]:
        """Every step over the median of those that are not saved."""
        median_s = statistics.median(self._steps_s(OFF))
        return [step_s / median_s for step_s in self._steps_s(variant)]

    def _p99_s(self, variant: str) -> float:
        return _p99(self._steps_s(variant))

    def _steps_s(self, variant: str) -> list[float]:
        return [step_s for cycle in self.cycles[variant] for step_s in cycle]


@dataclass(frozen=True, slots=True)
class Found:
    """One batch size: its steps, and what moved."""

    steps: Steps
    rates: Mapping[str, float]


def figures_of(found: Mapping[int, Found]) -> list[Series]:
    """Of both layouts that are saved in two stages the worse one counts.

    Medians have a sample for each batch size, and the worst one counts. The p99 is that of the
    steps of all batch sizes, each over the median of its size: of one size two or three steps
    would decide, and so others' work on the machine. It has a sample for each layout.
    """
    steps = [one.steps for one in found.values()]
    saved = tuple(
        max(one.overhead_median_pct(variant) for variant in (TWO_STAGE, MIXED)) for one in steps
    )
    direct = tuple(one.overhead_median_pct(DIRECT) for one in steps)
    p99s = {
        variant: _p99([ratio for one in steps for ratio in one.relative(variant)])
        for variant in (OFF, TWO_STAGE, MIXED)
    }
    rows = (
        ("tbt_overhead_median_pct", saved),
        (
            "tbt_overhead_p99_pct",
            tuple(100 * (p99s[variant] / p99s[OFF] - 1) for variant in (TWO_STAGE, MIXED)),
        ),
        ("tbt_direct_overhead_median_pct", direct),
    )
    return [
        Series(key=key, unit="%", samples=values, summary=Summary.MOST, is_figure=True)
        for key, values in rows
    ]


def details_of(found: Mapping[int, Found]) -> list[Series]:
    """Of each batch size: steps, overheads and rates."""
    result = []
    for size, one in found.items():
        steps = one.steps
        for variant in VARIANTS:
            medians_ms = tuple(1000 * median_s for median_s in steps.medians_s(variant))
            result.append(Series(key=f"batch{size}_{variant}_ms", unit="ms", samples=medians_ms))
        for variant in SAVING:
            overheads = {
                "overhead_pct": steps.overheads_pct(variant),
                "overhead_p99_pct": (steps.overhead_p99_pct(variant),),
            }
            result += [
                Series(key=f"batch{size}_{variant}_{name}", unit="%", samples=samples)
                for name, samples in overheads.items()
            ]
        result += [
            Series(
                key=f"batch{size}_{name}",
                unit="MB/s" if "mb_per_s" in name else "1/s",
                samples=(rate,),
            )
            for name, rate in one.rates.items()
        ]
    return result


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=P99_CUTS, method="inclusive")[-1]
