"""``python -m benchmarks restore --simulate``: the paper's platforms through our planner.

Costs come from nominal speeds and the factors in ``calibration`` and ``overlap``; schedules
and durations from the planner that the runner uses. Nothing is measured.
"""

from collections import defaultdict
from collections.abc import Sequence

from benchmarks.benchmark import Settings
from benchmarks.report import Series
from benchmarks.restore.ablation import show_ablation
from benchmarks.restore.calibration import (
    ATTENTION_FLOP,
    FLOPS_EFFICIENCY,
    FLOPS_EFFICIENCY_ELSE,
)
from benchmarks.restore.experiment import Experiment, Judged, judged
from benchmarks.restore.overlap import OVERLAP_EFFICIENCY
from benchmarks.restore.paper import CONTEXT_TOKENS, experiments
from benchmarks.restore.paper_ttft import ttft_experiments
from benchmarks.restore.platforms import LINK_EFFICIENCY, PLATFORMS, platform_of
from benchmarks.restore.setting import Setting
from benchmarks.restore.shapes import SHAPES, shape_of
from benchmarks.restore.show import show_claims, show_outside, show_speeds
from benchmarks.restore.show_ttft import show_not_simulated, show_ttft
from benchmarks.restore.table_3 import TABLE_3, schedule_of, show_balance, show_table_3
from benchmarks.restore.ttft import TtftSetting
from engine_adapters.restore import Mode

FIGURES = ("schedule_matches_paper", "speedup_in_paper_range", "ttft_speedup_in_paper_range")
NEAR = 0.05
"""Relative; how far outside of its range a speed-up still is near."""
NARROW = 1.6
"""A range whose high end is less than so many times its low end; a wide one is missed rarely."""


def simulate(settings: Settings) -> tuple[Series, ...]:
    """Prints all tables; raises BenchmarkError for a platform or model that cannot be read."""
    console = settings.console
    own = own_settings(settings.platforms, settings.models)
    console.print("Factors, the same for all rows:", style="bold")
    for factor in factors():
        console.print(f"* {factor}", highlight=False)
    if own:
        show_speeds(console, "Platforms and models that were asked for", own)
    show_balance(console)
    show_table_3(console)
    paper = experiments()
    for experiment in paper:
        show_speeds(console, experiment.title, experiment.settings)
        show_claims(console, experiment)
    show_ablation(console)
    ttft = ttft_experiments()
    show_ttft(console, ttft)
    show_outside(console, [*judged(paper), *judged(ttft)])
    show_not_simulated(console)
    console.print()
    return series(paper, ttft)


def factors() -> tuple[str, ...]:
    """What every printed row rests on and how to read it."""
    shares = ", ".join(f"{name} {share:.3f}" for name, share in FLOPS_EFFICIENCY.items())
    flops = (
        f"share of the FLOPS in use: {shares} (from 24 and 21 GB/s, section 6.1.3), their mean "
        f"{FLOPS_EFFICIENCY_ELSE:.3f} for others, on every GPU, to project and to compute"
    )
    attention = (
        f"attention: {ATTENTION_FLOP:.2f} x the term of section 3.2 (from 28 % less speed of 7B "
        "at 16K tokens, section 6.2.3)"
    )
    overlap = (
        f"reading and computing at once: {OVERLAP_EFFICIENCY:.3f} of either alone (from 1.66x "
        "over KV for 13B on an A100, section 6.2.1; not counted below)"
    )
    links = f"links: {LINK_EFFICIENCY} of nominal (packets of 128 bytes with their headers)"
    bound = "bound, in the tables: planned duration of hcache over the least of any partition"
    return flops, attention, links, overlap, bound


def own_settings(platforms: tuple[str, ...], models: tuple[str, ...]) -> tuple[Setting, ...]:
    """All pairs at the history lengths of figure 11; those not named are the paper's."""
    if not platforms and not models:
        return ()
    return tuple(
        Setting(shape=shape, platform=platform, token_count=token_count)
        for shape in (map(shape_of, models) if models else SHAPES.values())
        for platform in (tuple(map(platform_of, platforms)) or PLATFORMS.values())
        for token_count in CONTEXT_TOKENS
    )


def series(
    paper: tuple[Experiment[Setting], ...], ttft: tuple[Experiment[TtftSetting], ...]
) -> tuple[Series, ...]:
    """The figures, and for each figure of the paper our speed-ups, one for each row."""
    matches = sum(str(schedule_of(printed.shape)) == printed.schedule for printed in TABLE_3)
    of_speed, of_ttft = list(judged(paper)), list(judged(ttft))
    narrow = [each for each in of_speed if each.claim.high < NARROW * each.claim.low]
    speedups: dict[str, list[float]] = defaultdict(list)
    for each in (*of_speed, *of_ttft):
        speedups[each.key].append(each.speedup)
    for experiment in paper:
        speedups[f"{experiment.key}_hcache_vs_bound"] = [
            setting.over_bound(Mode.HCACHE) for setting in experiment.settings
        ]
    return (
        Series(key=FIGURES[0], unit="of 3", samples=(matches,), is_figure=True),
        Series(key=FIGURES[1], unit="share", samples=(_share_within(of_speed),), is_figure=True),
        Series(key=FIGURES[2], unit="share", samples=(_share_within(of_ttft),), is_figure=True),
        Series(
            key="speedup_near_paper_range", unit="share", samples=(_share_within(of_speed, NEAR),)
        ),
        Series(key="speedup_in_narrow_paper_range", unit="share", samples=(_share_within(narrow),)),
        *(Series(key=key, unit="ratio", samples=tuple(values)) for key, values in speedups.items()),
    )


def _share_within(claims: Sequence[Judged], tolerance: float = 0.0) -> float:
    return sum(abs(each.difference) <= tolerance for each in claims) / len(claims)
