"""The command that trains the reader leaves a model, and goes on where it stopped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.pic.facts.attention import watched_model
from benchmarks.pic.training import __main__ as command
from benchmarks.training.network import NetworkShape
from benchmarks.training.plan import Stage
from benchmarks.training.prepared import Prepared
from tests.benchmarks.pic.training.small_reading import (
    BATCH,
    LIBRARY,
    PLAN,
    PREPARED,
    SHAPE,
    SOURCES,
)
from tests.benchmarks.training.stopped import train_in_two_calls
from tests.support.scale import Scale, at


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(folder: Path, **options: object) -> Prepared:
        folder.mkdir(exist_ok=True)
        return PREPARED

    def shape(**options: object) -> NetworkShape:
        return SHAPE

    stage = Stage(step_count=2, batch=replace(BATCH, sequence_count=2))
    monkeypatch.setattr(command, "prepare", prepare)
    monkeypatch.setattr(command, "PLAN", replace(PLAN, stages=(stage,)))
    monkeypatch.setattr(command, "JUDGED", LIBRARY)
    monkeypatch.setattr(command, "NetworkShape", shape)
    monkeypatch.setattr(command, "sources_of", lambda prepared: SOURCES)


@at(Scale.QUICK)
def test_training_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pic"
    said = train_in_two_calls(command.main, folder, monkeypatch, capsys)
    assert "step 2: text" in said
    assert "at two_hops" in said
    note = json.loads((folder / "model" / "training.json").read_text())
    assert note["program"] == command.PROGRAM
    assert note["tokens"] == 2 * 2 * 96
    assert set(note["answered_by_kind"]) == {"one_hop", "two_hops", "few_shot", "unknown"}
    assert watched_model(folder / "model").shape == SHAPE
