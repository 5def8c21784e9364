"""The parts of the benchmark."""

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.cake import simulate
from benchmarks.cake.measured import run as measured
from benchmarks.report import Series

PARTS = {**measured.PARTS, "simulate": simulate.FIGURES}


def run(settings: Settings) -> tuple[Series, ...]:
    """Measures, unless only the simulation was asked for; raises BenchmarkError."""
    chosen = [part for part in measured.PARTS if part in (settings.parts or measured.PARTS)]
    found: tuple[Series, ...] = ()
    if chosen:
        found += measured.run(settings, chosen)
    if "simulate" in settings.parts:
        found += simulate.simulate(settings)
    return found


BENCHMARK = Benchmark(name="cake", figures=measured.FIGURES, run=run, parts=PARTS)
