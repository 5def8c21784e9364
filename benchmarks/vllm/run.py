"""The parts of the benchmark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.report import Series
from benchmarks.vllm import disturbed, native, pic, restore, server, steps, waiting
from engine_adapters.vllm.testing.errors import EngineError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: what it promises, how it runs, and whether it belongs to the quick ones."""

    figures: tuple[str, ...]
    run: Callable[[Settings, Say], tuple[Series, ...]]
    is_quick: bool = True


PARTS: Mapping[str, Part] = {
    "restore": Part(figures=restore.FIGURES, run=restore.measure),
    "disturbed": Part(figures=disturbed.FIGURES, run=disturbed.measure, is_quick=False),
    "steps": Part(figures=steps.FIGURES, run=steps.measure),
    "waiting": Part(figures=waiting.FIGURES, run=waiting.measure),
    "bfloat16": Part(figures=(), run=restore.measure_bfloat16, is_quick=False),
    "native": Part(figures=native.FIGURES, run=native.measure),
    "pic": Part(figures=pic.FIGURES, run=pic.measure),
    "server": Part(figures=server.FIGURES, run=server.measure),
}


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the chosen parts, or all, one after the other; raises BenchmarkError."""
    try:
        return _run(settings)
    except EngineError as error:
        raise BenchmarkError(str(error)) from error


def _run(settings: Settings) -> tuple[Series, ...]:
    chosen = settings.parts or [
        name for name, part in PARTS.items() if part.is_quick or not settings.quick
    ]
    series: tuple[Series, ...] = ()
    with settings.console.status("starting engines") as status:
        for name, part in PARTS.items():
            if name in chosen:
                series += part.run(settings, status.update)
                settings.keep(series)
    return series


BENCHMARK = Benchmark(
    name="vllm",
    figures=tuple(figure for part in PARTS.values() for figure in part.figures),
    run=run,
    parts={name: part.figures for name, part in PARTS.items()},
    slow_parts=frozenset(name for name, part in PARTS.items() if not part.is_quick),
)
