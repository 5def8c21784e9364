"""The parts: waiting conversations, one turn's window, saving, and overflow."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.conversations import overflow, preloading, saving, turns
from benchmarks.conversations.scale import FULL, QUICK, Scale
from benchmarks.conversations.show import show_buffers, show_histories, show_turns
from benchmarks.kit.scratch_model import scratch_model, torch_threads
from benchmarks.report import Series
from engine_adapters.runner.model.model import Model

SCRATCH_BYTES = 8_000_000_000
SPARE_CORES = 1
"""Left to the daemon, as beside an engine that computes on a GPU."""

TURNS, DEVICES = "turns", "devices"
HISTORIES, BUFFERS, SAVING, OVERFLOW = "histories", "buffers", "saving", "overflow"
PARTS = {
    TURNS: turns.FIGURES,
    DEVICES: turns.DEVICE_FIGURES,
    HISTORIES: (),
    BUFFERS: (preloading.FIGURE,),
    SAVING: (saving.FIGURE,),
    OVERFLOW: (overflow.FIGURE,),
}
PRELOADING = {HISTORIES: preloading.HISTORIES, BUFFERS: preloading.BUFFERS}
"""Parts that share saved conversations, and their figures in the paper."""
SHOWS = {HISTORIES: show_histories, BUFFERS: show_buffers, TURNS: show_turns}
MEASURES: dict[str, Callable[[Settings, Scale, Model, Path], tuple[Series, ...]]] = {
    TURNS: turns.measure,
    DEVICES: turns.measure_devices,
    SAVING: saving.measure,
    OVERFLOW: overflow.measure,
}


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the chosen parts, all when none is; raises BenchmarkError."""
    return measure(settings, QUICK if settings.quick else FULL)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """The same at any size."""
    chosen = settings.parts or tuple(PARTS)
    found: tuple[Series, ...] = ()
    with (
        torch_threads(spare_cores=SPARE_CORES),
        scratch_model(settings, scale.shape, scratch_bytes=SCRATCH_BYTES) as (folder, model),
    ):
        figures = [figure for part, figure in PRELOADING.items() if part in chosen]
        if figures:
            found += preloading.measure(settings, scale, model, folder, figures)
        for part, measured in MEASURES.items():
            if part in chosen:
                found += measured(settings, scale, model, folder)
    for part, show in SHOWS.items():
        if part in chosen:
            show(settings.console, found)
    return found


BENCHMARK = Benchmark(
    name="conversations",
    figures=tuple(figure for names in PARTS.values() for figure in names),
    run=run,
    parts=PARTS,
)
