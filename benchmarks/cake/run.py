"""The parts of the benchmark."""

from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.cake import simulate
from benchmarks.report import Series

PARTS = {"simulate": simulate.FIGURES}


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the parts that were chosen; raises BenchmarkError."""
    if not settings.parts:
        raise BenchmarkError("measuring restorations is still to come; add --simulate")
    return simulate.simulate(settings)


BENCHMARK = Benchmark(name="cake", figures=simulate.FIGURES, run=run, parts=PARTS)
