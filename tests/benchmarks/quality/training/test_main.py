"""The command that trains: it stops, goes on, and leaves a model at the end."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training import __main__ as command
from benchmarks.training import command as shared
from benchmarks.training.network import NetworkShape
from benchmarks.training.prepared import Prepared
from tests.benchmarks.quality.small import SHAPE
from tests.benchmarks.training.small_training import PLAN, PREPARED, WORDS


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def prepare(folder: Path, **options: object) -> Prepared:
        folder.mkdir(exist_ok=True)
        return PREPARED

    def shape(vocab_size: int) -> NetworkShape:
        return SHAPE

    monkeypatch.setattr(command, "prepare", prepare)
    monkeypatch.setattr(command, "PLAN", PLAN)
    monkeypatch.setattr(RecordWords, "of_vocabulary", lambda vocabulary: WORDS)
    monkeypatch.setattr(command, "NetworkShape", shape)
    monkeypatch.setattr(shared, "SHOWN_STEPS", 2)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["training", "--folder", str(folder), *options])
    return command.main()


def test_training_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "quality"
    monkeypatch.setattr(shared, "SAVED_EVERY_S", 1e-6)
    assert call(monkeypatch, folder, "--seconds", "1e-5") == 0
    assert not (folder / "model").exists()
    assert call(monkeypatch, folder) == 0
    said = capsys.readouterr().out
    assert "going on after step 1 and" in said
    assert "step 4: text" in said
    assert "at 48, " in said
    assert "3 characters of one" in said
    note = json.loads((folder / "model" / "training.json").read_text())
    assert note["steps"] == PLAN.step_count
    assert note["tokens"] == 4 * 48 + 3 * 2 * 128
    assert list(note["recall_by_positions"]) == ["48", "128"]
    assert note["text_characters"] == 7
    assert call(monkeypatch, folder) == 0
    assert "going on after step 4 and" in capsys.readouterr().out
