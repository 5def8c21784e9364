"""Prompts that are linked from entries: EPIC, figures 4 to 6.

In reading order: how much is measured (``scale``), one daemon with entries in it (``linked``), what
the times say (``figures``), their picture (``plot``), whether answers are right (``facts``), and
the whole (``run``). ``training`` makes the model that answers.
"""

from benchmarks.benchmark import Benchmark
from benchmarks.pic.facts import judged
from benchmarks.pic.figures import FIGURES
from benchmarks.pic.run import ANSWERS, LENGTHS, TIMES, run

BENCHMARK = Benchmark(
    name="pic",
    figures=(*FIGURES, *judged.FIGURES),
    run=run,
    parts={TIMES: FIGURES, LENGTHS: FIGURES, ANSWERS: judged.FIGURES},
)
"""Runs the benchmark of linked prompts.

``times``: all methods and lengths in turn, from devices and DRAM, by a model of random weights.
``lengths``: the same by the four methods that figures are about, in a fourth of the time.
``answers``: which share of questions a trained model answers, at the length that it was trained at.
"""
