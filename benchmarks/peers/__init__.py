"""The store beside another store's raw engine on the same disk, in one interleaved run."""

from benchmarks.benchmark import Benchmark
from benchmarks.peers.run import run
from benchmarks.peers.series import FIGURES

BENCHMARK = Benchmark(name="peers", figures=FIGURES, run=run)
