"""Prompts that are linked from entries: EPIC, figures 5 and 8, without a trained model.

In reading order: how much is measured (``scale``), one daemon with entries in it (``linked``), what
the times say (``figures``), their picture (``plot``), and the whole (``run``).
"""

from benchmarks.benchmark import Benchmark
from benchmarks.pic.figures import FIGURES
from benchmarks.pic.run import run

BENCHMARK = Benchmark(name="pic", figures=FIGURES, run=run)
