"""All parts in turn, within the time that there is, and what they promise."""

import faulthandler
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.gpu import copies, daemon, decode, marked_tests
from benchmarks.gpu.device import MeasuredDevice, chosen_device
from benchmarks.gpu.found import WAYS, Cell
from benchmarks.gpu.restore import RestoreLab
from benchmarks.gpu.scale import CPU, FULL, QUICK, Scale
from benchmarks.gpu.shapes import LLAMA_3_8B
from benchmarks.gpu.show import show_all
from benchmarks.gpu.targets import verdicts
from benchmarks.gpu.time_budget import TimeBudget, reserved_after
from benchmarks.report import Series, Summary
from engine_adapters.restore import Mode

STDERR = 2
RESTORE_FIGURES = (
    "gpu_hcache_vs_bound_max",
    "gpu_hcache_vs_kv_x",
    "gpu_cake_vs_oracle_max",
    "gpu_tokens_equal",
)
PARTS = {
    "copies": copies.FIGURES,
    "tests": marked_tests.FIGURES,
    "decode": decode.FIGURES,
    "restore": RESTORE_FIGURES,
    "daemon": daemon.FIGURES,
}
"""In the order in which they run: the short ones first, whose failure would explain the others."""
FIGURES = tuple(figure for figures in PARTS.values() for figure in figures)


def run(settings: Settings) -> tuple[Series, ...]:
    """The size that the device and the settings ask for; raises BenchmarkError."""
    measured = chosen_device(settings.device)
    if measured.is_cpu:
        return measure(settings, CPU, measured)
    return measure(settings, QUICK if settings.quick else FULL, measured)


def measure(settings: Settings, scale: Scale, measured: MeasuredDevice) -> tuple[Series, ...]:
    """All parts that were chosen and fit into the time; those left out are series, too."""
    budget = TimeBudget(limit_s=scale.limit_s, clock=time.monotonic)
    chosen = {
        name: needed_s
        for name, needed_s in scale.needs_s.items()
        if not settings.parts or name in settings.parts
    }
    series: list[Series] = []
    bench = _Bench(settings, scale, measured, budget, chosen, series)
    # A part that never ends says where all threads are.
    faulthandler.dump_traceback_later(scale.limit_s, file=STDERR)
    for name, needed_s in chosen.items():
        if not budget.allows(name, needed_s):
            continue
        settings.console.print(f"{name}: {budget.left_s:.0f} s are left", highlight=False)
        try:
            series += bench.parts[name]()
            settings.keep(series)
        except BenchmarkError as error:
            budget.leave_out(name, str(error))
        except Exception as error:
            # A machine with a GPU is seldom at hand: what the other parts find is worth the time.
            settings.console.print_exception()
            budget.leave_out(name, f"it failed with {type(error).__name__}: {error}")
    faulthandler.cancel_dump_traceback_later()
    figures = {one.key: one.value for one in series if one.is_figure}
    show_all(
        settings.console,
        measured.name,
        scale.rates,
        bench.cells,
        verdicts(figures),
        budget.left_out,
        is_rehearsal=measured.is_cpu,
    )
    if not figures and not set(chosen) <= {"daemon"}:
        raise BenchmarkError("no part could be measured; why is above")
    used_s = scale.limit_s - budget.left_s
    return (
        *series,
        Series(key="gpu_run_s", unit="s", samples=(used_s,)),
        *(
            Series(key=f"left_out: {one.name}", unit="not measured", samples=(1.0,))
            for one in budget.left_out
        ),
    )


@dataclass(slots=True)
class _Bench:
    """The parts of one run by name, and the cells of its restorations."""

    settings: Settings
    scale: Scale
    measured: MeasuredDevice
    budget: TimeBudget
    chosen: dict[str, float]
    series: list[Series]
    """Of the parts that have ended."""
    cells: tuple[Cell, ...] = ()

    @property
    def parts(self) -> dict[str, Callable[[], Sequence[Series]]]:
        """What carries each of them out."""
        settings, scale, measured = self.settings, self.scale, self.measured
        return {
            "copies": lambda: copies.run(settings, scale, measured),
            "tests": self._tests,
            "decode": lambda: decode.run(settings, scale, measured),
            "restore": self._restore,
            "daemon": lambda: daemon.run(settings, scale.storage_parts, self.budget),
        }

    def _tests(self) -> Sequence[Series]:
        later_s = reserved_after("tests", self.chosen)
        limit_s = max(self.chosen["tests"], self.budget.left_s - later_s)
        return marked_tests.run(self.settings.console, self.scale.tests, limit_s=limit_s)

    def _restore(self) -> Sequence[Series]:
        later_s = reserved_after("restore", self.chosen)
        lab = RestoreLab(self.settings, self.scale, self.measured, self.budget, reserved_s=later_s)
        for cell in lab.measure():
            self.cells += (cell,)
            self.settings.keep([*self.series, *series_of(self.cells)])
            self.settings.console.print(f"{cell.name}: {cell.sentence}", highlight=False)
        return series_of(self.cells)


def series_of(cells: Sequence[Cell]) -> list[Series]:
    """A sample of each figure for each cell, and what each cell took in every way."""
    if not cells:
        return []
    # States of grouped heads are smaller than hidden states: there ``hcache`` loads them.
    gaining = [one for one in cells if one.model != LLAMA_3_8B.name]
    rows = (
        ("gpu_hcache_vs_bound_max", [one.hcache_vs_bound for one in cells], Summary.MOST),
        (
            "gpu_hcache_vs_kv_x",
            [one.faster(Mode.HCACHE, Mode.KV) for one in gaining],
            Summary.LEAST,
        ),
        ("gpu_cake_vs_oracle_max", [one.cake_vs_oracle for one in cells], Summary.MOST),
        (
            "gpu_tokens_equal",
            [one.equal / one.compared for one in cells if one.compared],
            Summary.LEAST,
        ),
    )
    figures = [
        Series(key=key, unit="ratio", samples=tuple(samples), summary=summary, is_figure=True)
        for key, samples, summary in rows
        if samples
    ]
    return [*figures, *(series for cell in cells for series in details_of(cell))]


def details_of(cell: Cell) -> list[Series]:
    """Seconds of every way, of the bound and of the oracle."""
    ways = [Series(key=f"{cell.name}_{way}_s", unit="s", samples=cell.ttft_s[way]) for way in WAYS]
    restored = [
        Series(key=f"{cell.name}_{way}_restored_s", unit="s", samples=cell.restored_s[way])
        for way in (Mode.KV, Mode.HIDDEN, Mode.HCACHE, Mode.AUTO)
    ]
    rest = (
        ("layers", "layers", (float(cell.layer_count),)),
        ("bound_s", "s", (cell.bound_s,)),
        ("oracle_s", "s", cell.oracle_s),
        ("hcache_vs_bound", "ratio", (cell.hcache_vs_bound,)),
        ("cake_vs_oracle", "ratio", (cell.cake_vs_oracle,)),
        ("tokens_equal", "ways", (float(cell.equal),)),
        ("tokens_compared", "ways", (float(cell.compared),)),
        ("cake_waited_s", "s", cell.cake_waited_s),
        ("cake_loaded_tokens", "tokens", cell.cake_loaded_tokens),
    )
    return [
        *ways,
        *restored,
        *(
            Series(key=f"{cell.name}_{key}", unit=unit, samples=values)
            for key, unit, values in rest
        ),
    ]
