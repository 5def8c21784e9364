"""All parts in turn, and what they promise."""

from contextlib import ExitStack

from benchmarks import fio
from benchmarks.benchmark import Benchmark, Settings
from benchmarks.huge_pages import huge_pages
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.storage import (
    chunk_latency,
    clients,
    cold_reads,
    device_scaling,
    dram_hits,
    durable_puts,
    fairness,
    mixed,
    overtaken,
    slice_curve,
)
from benchmarks.storage.bench import Bench
from benchmarks.storage.scale import FULL, QUICK, Scale
from benchmarks.workload import GIB

ARENAS_BYTES_MAX = 4 * GIB
"""More than all arenas that any part has at a time."""

PARTS = {
    "cold_reads": cold_reads.PART,
    "durable_puts": durable_puts.PART,
    "dram_hits": dram_hits.PART,
    "chunk_latency": chunk_latency.PART,
    "device_scaling": device_scaling.PART,
    "overtaken": overtaken.PART,
    "clients": clients.PART,
    "fairness": fairness.PART,
    "fairness_of_two": fairness.PART_OF_TWO,
    "fairness_split": fairness.PART_SPLIT,
    "mixed": mixed.PART,
    "slice_curve": slice_curve.PART,
}
NEEDS_FIO = frozenset({"cold_reads", "durable_puts", "device_scaling", "slice_curve"})
"""Parts that compare with fio."""


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Runs the chosen parts one after the other; raises BenchmarkError."""
    chosen = settings.parts or tuple(PARTS)
    if needs_fio := bool(NEEDS_FIO & set(chosen)):
        fio.require_fio()
    with ExitStack() as stack:
        is_granted = stack.enter_context(huge_pages(ARENAS_BYTES_MAX))
        pages = "huge pages" if is_granted else "pages of 4 KiB, as the system allows no others"
        settings.console.print(f"arenas lie on {pages}")
        folder = stack.enter_context(scratch_folder(settings.folder, scale.scratch_bytes))
        status = stack.enter_context(settings.console.status("preparing"))
        bench = Bench(
            settings=settings,
            scale=scale,
            folder=folder,
            generator=settings.random(),
            status=status.update,
        )
        if needs_fio:
            fio.make_file(bench.fio_path, scale.call_bytes)
        return tuple(
            series for name, part in PARTS.items() if name in chosen for series in part.run(bench)
        )


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)


BENCHMARK = Benchmark(
    name="storage",
    figures=tuple(figure for part in PARTS.values() for figure in part.figures),
    run=run,
    parts={name: part.figures for name, part in PARTS.items()},
)
