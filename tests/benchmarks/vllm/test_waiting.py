"""The benchmark of steps in which requests wait."""

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.vllm import waiting


def test_every_step_is_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUICK_STEPS", 3)
    settings = Settings(quick=True, folder=tmp_path, seed=1, console=Console(quiet=True))
    median, most = waiting.measure(settings, lambda _: None)
    assert (median.key,) == waiting.FIGURES
    assert len(median.samples) == 3
    assert median.value <= most.value
