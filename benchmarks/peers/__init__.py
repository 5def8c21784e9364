"""The store beside LMCache on the same disk, in interleaved runs.

Beside its raw engine (``run``), and below LMCache beside its own files (``l2``).
"""

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.peers import l2, run
from benchmarks.peers.l2_bench import GUIDE
from benchmarks.peers.series import FIGURES
from benchmarks.report import Series

RAW, L2 = "raw", "l2"
PARTS = {RAW: FIGURES, L2: l2.FIGURES}


def measured(settings: Settings) -> tuple[Series, ...]:
    """Runs the chosen parts, all when none is; raises BenchmarkError."""
    chosen = settings.parts or tuple(PARTS)
    guide = run.GUIDE if RAW in chosen else GUIDE
    interpreter = run.required_interpreter(settings.peer_python, guide)
    found: tuple[Series, ...] = ()
    if RAW in chosen:
        found += run.run(settings)
    if L2 in chosen:
        found += l2.measure(settings, l2.QUICK if settings.quick else l2.FULL, interpreter)
    return found


BENCHMARK = Benchmark(
    name="peers",
    figures=tuple(figure for figures in PARTS.values() for figure in figures),
    run=measured,
    parts=PARTS,
)
