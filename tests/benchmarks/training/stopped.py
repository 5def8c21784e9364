"""A command that trains, stopped after its first step and called again."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks.training import command as shared


def train_in_two_calls(
    main: Callable[[], int],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What the second call says, which ends the training; the first one leaves no model."""
    monkeypatch.setattr(shared, "SHOWN_STEPS", 2)
    monkeypatch.setattr(shared, "SAVED_EVERY_S", 1e-6)
    threads = torch.get_num_threads()
    try:
        assert call(main, folder, monkeypatch, "--seconds", "1e-5") == 0
        assert not (folder / "model").exists()
        capsys.readouterr()
        assert call(main, folder, monkeypatch) == 0
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert "going on after step 1 and" in said
    return said


def call(
    main: Callable[[], int], folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str
) -> int:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(folder), *options])
    return main()
