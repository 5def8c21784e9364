"""The parts of the benchmark."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.report import Series
from benchmarks.vllm import native, restore, server

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part: what it promises, and how it runs."""

    figures: tuple[str, ...]
    run: Callable[[Settings, Say], tuple[Series, ...]]


PARTS: Mapping[str, Part] = {
    "restore": Part(figures=restore.FIGURES, run=restore.measure),
    "bfloat16": Part(figures=restore.BFLOAT16_FIGURES, run=restore.measure_bfloat16),
    "native": Part(figures=native.FIGURES, run=native.measure),
    "server": Part(figures=server.FIGURES, run=server.measure),
}


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the chosen parts one after the other; raises BenchmarkError."""
    with settings.console.status("starting engines") as status:
        return tuple(
            series
            for name, part in PARTS.items()
            if not settings.parts or name in settings.parts
            for series in part.run(settings, status.update)
        )


BENCHMARK = Benchmark(
    name="vllm",
    figures=tuple(figure for part in PARTS.values() for figure in part.figures),
    run=run,
    parts={name: part.figures for name, part in PARTS.items()},
)
