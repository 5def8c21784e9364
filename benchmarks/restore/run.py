"""The parts of the benchmark."""

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.report import Series
from benchmarks.restore import simulate
from benchmarks.restore.measured import ablation
from benchmarks.restore.measured import run as measured

PARTS = {
    "measure": measured.FIGURES,
    "contention": measured.FIGURES_CONTENDED,
    "ablation": ablation.FIGURES,
    "simulate": simulate.FIGURES,
}


def run(settings: Settings) -> tuple[Series, ...]:
    """Measures the modes, unless other parts were asked for; raises BenchmarkError."""
    parts = settings.parts or ("measure",)
    found: tuple[Series, ...] = ()
    if "measure" in parts:
        found += measured.run(settings)
    elif "contention" in parts:
        found += measured.run_contended(settings)
    if "ablation" in parts:
        found += ablation.run(settings)
    if "simulate" in parts:
        found += simulate.simulate(settings)
    return found


BENCHMARK = Benchmark(name="restore", figures=measured.FIGURES, run=run, parts=PARTS)
