"""The machine with a GPU: tests, restorations, saves, copies and the daemon within nine minutes.

In reading order: the models whose layers are measured (``shapes``), how many of them fit
(``layer_fit``), what a run measures (``scale``) and which parts of that the time allows
(``time_budget``); the device (``device``), a model on it (``random_weights``, ``traced_model``)
and how fast its scratch folder is (``folder_rates``); the parts: ``copies``, ``marked_tests``,
``decode``, restorations (``histories``, ``plain_read``, ``cells``, ``restore``) and ``daemon``;
what was found (``found``), held against targets (``targets``) and against what papers print
(``printed``), and shown (``show``); all parts in turn (``run``). How it gets to a
machine without a network: ``bundle``.
"""

from benchmarks.benchmark import Benchmark
from benchmarks.gpu.run import FIGURES, PARTS, run

BENCHMARK = Benchmark(name="gpu", figures=FIGURES, run=run, parts=PARTS, may_leave_out=True)
