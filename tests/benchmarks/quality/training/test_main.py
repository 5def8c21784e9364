"""The command that trains: it stops, goes on, and leaves a model at the end."""

import json
from pathlib import Path

import pytest

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training import __main__ as command
from benchmarks.training.network import NetworkShape
from benchmarks.training.prepared import Prepared
from tests.benchmarks.quality.small import SHAPE
from tests.benchmarks.training.small_training import PLAN, PREPARED, WORDS
from tests.benchmarks.training.stopped import call, train_in_two_calls


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(folder: Path, **options: object) -> Prepared:
        folder.mkdir(exist_ok=True)
        return PREPARED

    def shape(vocab_size: int) -> NetworkShape:
        return SHAPE

    monkeypatch.setattr(command, "prepare", prepare)
    monkeypatch.setattr(command, "PLAN", PLAN)
    monkeypatch.setattr(RecordWords, "of_vocabulary", lambda vocabulary: WORDS)
    monkeypatch.setattr(command, "NetworkShape", shape)


def test_training_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "quality"
    said = train_in_two_calls(command.main, folder, monkeypatch, capsys)
    assert "step 4: text" in said
    assert "at 48, " in said
    assert "3 characters of one" in said
    note = json.loads((folder / "model" / "training.json").read_text())
    assert note["steps"] == PLAN.step_count
    assert note["tokens"] == 4 * 48 + 3 * 2 * 128
    assert list(note["recall_by_positions"]) == ["48", "128"]
    assert note["text_characters"] == 7
    assert call(command.main, folder, monkeypatch) == 0
    assert "going on after step 4 and" in capsys.readouterr().out
