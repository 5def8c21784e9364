"""Time between tokens while the states of every step are saved: HCache, figure 14."""

from benchmarks.benchmark import Benchmark
from benchmarks.decode.run import FIGURES, PARTS, run

BENCHMARK = Benchmark(name="decode", figures=FIGURES, run=run, parts=PARTS)
