"""The parts of the benchmark."""

from benchmarks.benchmark import Benchmark, BenchmarkError, Settings
from benchmarks.report import Series
from benchmarks.restore import layers_silence, simulate
from benchmarks.restore.measured import ablation, slow_store
from benchmarks.restore.measured import run as measured

PARTS = {
    "measure": measured.FIGURES,
    "contention": measured.FIGURES_SOME,
    "compute_rich": measured.FIGURES_SOME,
    "split": measured.FIGURES_SPLIT,
    "ablation": ablation.FIGURES,
    "slow_store": slow_store.FIGURES,
    "slow_store_split": slow_store.FIGURES_SPLIT,
    "layers_silence": layers_silence.FIGURES,
    "simulate": simulate.FIGURES,
}


def run(settings: Settings) -> tuple[Series, ...]:
    """Measures the modes, unless other parts were asked for; raises BenchmarkError."""
    parts = settings.parts or ("measure",)
    alike = [part for part in ("measure", "contention", "compute_rich") if part in parts]
    if len(alike) > 1:
        raise BenchmarkError(
            f"the parts {' and '.join(alike)} have the same figures: run one after the other"
        )
    found: tuple[Series, ...] = ()
    if "measure" in parts:
        found += measured.run(settings)
    if "contention" in parts:
        found += measured.run_contended(settings)
    if "compute_rich" in parts:
        found += measured.run_compute_rich(settings)
    if "split" in parts:
        found += measured.run_split(settings)
    if "ablation" in parts:
        found += ablation.run(settings)
    if "slow_store" in parts:
        found += slow_store.run(settings)
    if "slow_store_split" in parts:
        found += slow_store.run_split(settings)
    if "layers_silence" in parts:
        found += layers_silence.run(settings)
    if "simulate" in parts:
        found += simulate.simulate(settings)
    return found


BENCHMARK = Benchmark(name="restore", figures=measured.FIGURES, run=run, parts=PARTS)
