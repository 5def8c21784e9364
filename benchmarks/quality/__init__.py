"""Perplexity and recall after a window has overflowed (AttentionStore, tables 1 and 2).

In reading order. How the small Llama was trained (``training``) and how it is loaded (``model``);
texts that it was not trained on (``held_out``) and ``records`` to be recalled. What can be done
with a history that overflows (``way``), in a cache of its own (``bare_window``) and by the runner
with a store (``talk``), where a ``teacher`` says what is said. What is measured: ``perplexity``
and ``retrieval``, how much of both (``scale``), all of it (``run``), and what was ``found``.
"""

from benchmarks.benchmark import Benchmark
from benchmarks.quality.found import FIGURES
from benchmarks.quality.run import run

BENCHMARK = Benchmark(name="quality", figures=FIGURES, run=run)
