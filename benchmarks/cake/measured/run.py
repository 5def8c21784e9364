"""The measured parts one after the other."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import torch

from benchmarks.benchmark import Settings
from benchmarks.cake.measured import adaptive_lab, check_lab, fluctuation_lab, grid
from benchmarks.cake.measured.plots import check_plots
from benchmarks.cake.measured.scale import FULL, QUICK, Scale
from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.cake.measured.stage import Stage
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.random_model import RandomModelShape, write_random_model

SCRATCH_BYTES = 3_000_000_000
EQUAL = "tokens_equal"

_MEASURES: dict[str, Callable[[Stage], tuple[list[Series], bool]]] = {
    "grid": grid.measure,
    "fluctuation": fluctuation_lab.measure,
    "adaptive": adaptive_lab.measure,
    "check": check_lab.measure,
}

PARTS: dict[str, tuple[str, ...]] = {
    "grid": (*grid.FIGURES, EQUAL),
    "fluctuation": (*fluctuation_lab.FIGURES, EQUAL),
    "adaptive": (*adaptive_lab.FIGURES, EQUAL),
    "check": check_lab.FIGURES,
}
DRAWN = {"fluctuation", "adaptive"}
"""Parts that end with a picture."""

FIGURES = tuple(dict.fromkeys(figure for figures in PARTS.values() for figure in figures))


def run(settings: Settings, parts: Sequence[str]) -> tuple[Series, ...]:
    """The benchmark at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL, parts)


def measure(settings: Settings, scale: Scale, parts: Sequence[str]) -> tuple[Series, ...]:
    """Measures these parts; raises BenchmarkError."""
    if settings.plots is not None and DRAWN.intersection(parts):
        check_plots()
    threads = torch.get_num_threads()
    series: list[Series] = []
    equal: list[float] = []
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        # A core stays free for the daemon, as beside an engine that computes on a GPU.
        torch.set_num_threads(max(1, threads - 1))
        folder = stack.enter_context(scratch_folder(settings.folder, SCRATCH_BYTES))
        stage = Stage(
            settings=settings,
            scale=scale,
            folder=folder,
            mha=_model(folder / "mha", scale.mha),
            gqa=_model(folder / "gqa", scale.gqa),
        )
        for part in parts:
            found, were_equal = _MEASURES[part](stage)
            series += found
            if EQUAL in PARTS[part]:
                equal.append(float(were_equal))
    if equal:
        series.append(
            Series(
                key=EQUAL,
                unit="all",
                samples=tuple(equal),
                summary=Summary.LEAST,
                is_figure=True,
            )
        )
    return tuple(series)


def _model(directory: Path, shape: RandomModelShape) -> SharedModel:
    write_random_model(directory, shape, [corpus()[:TOKENIZER_BYTES]])
    model = SharedModel.from_directory(directory)
    assert isinstance(model, SharedModel)
    return model
