"""The simulation in tables."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.restore.claim import Claim
from benchmarks.restore.experiment import Compared, Experiment, Judged
from benchmarks.restore.setting import Setting
from engine_adapters.restore import Mode

_MODES = {
    Mode.RECOMPUTE: "recompute",
    Mode.KV: "kv",
    Mode.HIDDEN: "hidden",
    Mode.NAIVE_HYBRID: "hybrid",
    Mode.HCACHE: "hcache",
    Mode.AUTO: "auto",
}
"""In the order of columns."""
_KILO = 1e3


def new_table(title: str, left: Iterable[str], right: Iterable[str]) -> Table:
    """An empty table with columns of words, then columns of numbers."""
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def show(console: Console, table: Table, notes: Iterable[str] = ()) -> None:
    """A table and what is to be said below it."""
    console.print()
    console.print(table)
    for note in notes:
        console.print(f"* {note}", highlight=False)


def show_speeds(console: Console, title: str, settings: tuple[Setting, ...]) -> None:
    """Restoration speed in all modes, the schedules of hcache and auto, and hcache's bound.

    The last is its planned duration over the least bound of any partition.
    """
    table = new_table(
        title,
        ("thousand tokens/s",),
        (*_MODES.values(), "schedule", "of auto", "bound"),
    )
    for setting in settings:
        table.add_row(
            setting.name,
            *(f"{setting.tokens_per_s(mode) / _KILO:.1f}" for mode in _MODES),
            str(setting.schedule(Mode.HCACHE)),
            str(setting.schedule(Mode.AUTO)),
            f"{setting.over_bound(Mode.HCACHE):.3f}",
        )
    show(console, table)


def show_claims(console: Console, experiment: Experiment[Compared]) -> None:
    """Each claim of the paper beside our figure, and why where it is missed."""
    table = new_table(
        f"{experiment.title}: the paper beside ours",
        ("", "speed-up of", "section"),
        ("paper", "ours", "difference", ""),
    )
    reasons: dict[str, None] = {}
    for setting in experiment.settings:
        for claim in setting.claims:
            speedup = setting.speedup(claim)
            difference = claim.difference(speedup)
            if claim.is_counted and difference:
                reasons[setting.why] = None
            table.add_row(
                setting.name,
                f"{claim.mode} over {claim.over}",
                claim.section,
                str(claim),
                f"{speedup:.2f}",
                f"{difference:+.1%}",
                _verdict(claim, difference),
            )
    show(console, table, [experiment.note, *(f"outside: {why}" for why in reasons)])


def show_outside(console: Console, judged: Sequence[Judged]) -> None:
    """Which of the claims that count are missed, of all experiments."""
    outside = [each for each in judged if each.difference]
    table = new_table(
        f"Outside of the paper's ranges: {len(outside)} of {len(judged)}",
        ("figure", "", "speed-up of"),
        ("paper", "ours", "difference"),
    )
    for each in outside:
        table.add_row(
            each.title.split(":")[0],
            each.setting_name,
            f"{each.claim.mode} over {each.claim.over}",
            str(each.claim),
            f"{each.speedup:.2f}",
            f"{each.difference:+.1%}",
        )
    show(console, table)


def _verdict(claim: Claim, difference: float) -> str:
    if claim.is_calibrated:
        return "calibrated"
    if not claim.is_counted:
        return "one figure"
    return "outside" if difference else "within"
