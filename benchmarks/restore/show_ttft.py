"""Times to the first token in tables, and how long the paper's prefill must have been."""

from rich.console import Console

from benchmarks.restore.experiment import Experiment
from benchmarks.restore.paper_ttft import FALL_OVER_SKEW, IDEAL_OVER, LONG_CONTEXTS, NOT_SIMULATED
from benchmarks.restore.show import new_table, show, show_claims
from benchmarks.restore.ttft import TtftSetting
from engine_adapters.restore import Mode

_MODES = (Mode.RECOMPUTE, Mode.KV, Mode.HCACHE)
_MILLI = 1e3


def show_ttft(console: Console, experiments: tuple[Experiment[TtftSetting], ...]) -> None:
    """Each experiment beside the paper, then what all of them say of prefilling."""
    for experiment in experiments:
        _show_times(console, experiment)
        show_claims(console, experiment)
    _show_fall(console, experiments[-1])
    _show_prefill(console, experiments)


def show_not_simulated(console: Console) -> None:
    """The paper's figures that are left out, and why."""
    console.print()
    console.print("Not simulated:", style="bold")
    for reason in NOT_SIMULATED:
        console.print(f"* {reason}", highlight=False)


def _show_times(console: Console, experiment: Experiment[TtftSetting]) -> None:
    table = new_table(experiment.title, ("TTFT in ms",), (*_MODES, "of it prefill"))
    for setting in experiment.settings:
        times_s = (*(setting.ttft_s(mode) for mode in _MODES), setting.prefill_s)
        table.add_row(setting.name, *map(_ms, times_s))
    show(console, table)


def _show_fall(console: Console, reuse: Experiment[TtftSetting]) -> None:
    uniform, skewed = reuse.settings
    falls = [uniform.ttft_s(mode) / skewed.ttft_s(mode) for mode in _MODES]
    low, high = FALL_OVER_SKEW
    console.print(
        f"* from uniform to Zipf 2.0 TTFT falls by {low:g} - {high:g}x in the paper and by "
        f"{min(falls):.2f} - {max(falls):.2f}x here, by the modes",
        highlight=False,
    )


def _show_prefill(console: Console, experiments: tuple[Experiment[TtftSetting], ...]) -> None:
    """Of every claim that is a single number or missed, and of figure 4."""
    table = new_table(
        "Prefill in ms with which our restorations would give the paper's numbers",
        ("", "speed-up of"),
        ("paper", "implied", "ours"),
    )
    for experiment in experiments:
        for setting in experiment.settings:
            for claim in setting.claims:
                if claim.difference(setting.speedup(claim)):
                    table.add_row(
                        f"{experiment.title.split(':')[0]}, {setting.name}",
                        f"{claim.mode} over {claim.over}",
                        str(claim),
                        _ms(setting.implied_prefill_s(claim)),
                        _ms(setting.prefill_s),
                    )
    for setting in _mixed(experiments):
        for mode, (low, high) in IDEAL_OVER.items():
            implied = (setting.ideal_prefill_s(mode, end) for end in (high, low))
            table.add_row(
                f"Figure 4, {setting.name}",
                f"prefill alone over {mode}",
                f"{low:g} - {high:g}",
                " - ".join(map(_ms, implied)),
                _ms(setting.prefill_s),
            )
    show(console, table)


def _mixed(experiments: tuple[Experiment[TtftSetting], ...]) -> list[TtftSetting]:
    return [
        setting
        for experiment in experiments
        for setting in experiment.settings
        if setting.request == LONG_CONTEXTS[-1]
    ]


def _ms(seconds: float) -> str:
    return f"{seconds * _MILLI:.0f}"
