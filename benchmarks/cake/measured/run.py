"""The measured parts one after the other."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.benchmark import Settings
from benchmarks.cake.measured import adaptive_lab, check_lab, disturbed_lab, fluctuation_lab, grid
from benchmarks.cake.measured.plots import check_plots
from benchmarks.cake.measured.scale import FULL, QUICK, Scale
from benchmarks.cake.measured.shared_model import SharedModel
from benchmarks.cake.measured.stage import Stage
from benchmarks.kit.scratch_model import torch_threads, write_scratch_model
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.model.random_model import RandomModelShape

SCRATCH_BYTES = 3_000_000_000
EQUAL = "tokens_equal"

_MEASURES: dict[str, Callable[[Stage], tuple[list[Series], bool]]] = {
    "grid": grid.measure,
    "fluctuation": fluctuation_lab.measure,
    "adaptive": adaptive_lab.measure,
    "check": check_lab.measure,
    "disturbed": disturbed_lab.measure,
}

PARTS: dict[str, tuple[str, ...]] = {
    "grid": (*grid.FIGURES, EQUAL),
    "fluctuation": (*fluctuation_lab.FIGURES, EQUAL),
    "adaptive": (*adaptive_lab.FIGURES, EQUAL),
    "check": check_lab.FIGURES,
    "disturbed": (*disturbed_lab.FIGURES, EQUAL),
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
    series: list[Series] = []
    equal: list[float] = []
    with (
        torch_threads(spare_cores=1),
        scratch_folder(settings.folder, SCRATCH_BYTES) as folder,
    ):
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
    write_scratch_model(directory, shape)
    model = SharedModel.from_directory(directory)
    assert isinstance(model, SharedModel)
    return model
