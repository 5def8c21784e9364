import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.cake.fluctuation import Fluctuation
from benchmarks.cake.measured.history import Taken
from benchmarks.cake.measured.plots import check_plots, plot_batches, plot_pointers
from benchmarks.cake.measured.run import measure
from benchmarks.cake.measured.scale import QUICK
from benchmarks.cake.measured.shared_model import StepRecord
from engine_adapters.restore import Action
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.pointer_sample import PointerSample

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

STEPS = tuple(
    StepRecord(started_s=100 + n, ended_s=100.5 + n, token_count=64, stop_position=64 * (n + 1))
    for n in range(3)
)


def test_both_pointers_are_drawn(tmp_path: Path) -> None:
    completion = Completion(
        request_id=0,
        prompt_tokens=400,
        token_ids=(1,) * 401,
        computed_tokens=192,
        restore=RestoreReport(),
        ttft_s=3.0,
        duration_s=3.0,
    )
    samples = [
        PointerSample(
            now_s=100.0 + n, action=Action.COMPUTE, computed_to=64 * n, loaded_from=400 - 50 * n
        )
        for n in range(4)
    ]
    path = tmp_path / "made" / "pointers.png"
    rate = Fluctuation(1, most=1e7, interval_s=0.1)
    plot_pointers(path, Taken(completion=completion, started_s=100.0, steps=STEPS), samples, rate)
    assert path.read_bytes().startswith(PNG_MAGIC)


def test_batches_are_drawn(tmp_path: Path) -> None:
    path = tmp_path / "batches.png"
    plot_batches(path, {"adaptive": (100.0, STEPS), "first come": (99.0, STEPS)})
    assert path.read_bytes().startswith(PNG_MAGIC)


def test_what_cannot_be_drawn_is_known_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_plots()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    file = tmp_path / "no folder"
    file.touch()
    settings = Settings(
        quick=True,
        folder=file,
        seed=1,
        console=Console(file=io.StringIO()),
        plots=tmp_path,
    )
    with pytest.raises(BenchmarkError, match="the pictures need matplotlib"):
        measure(settings, QUICK, ["grid", "adaptive"])
