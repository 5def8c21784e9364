"""The command that trains the reader leaves a model, and goes on where it stopped."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.pic.facts.attention import watched_model
from benchmarks.pic.training import __main__ as command
from benchmarks.training import command as shared
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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
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
    folder = tmp_path / "pic"
    monkeypatch.setattr(shared, "SAVED_EVERY_S", 1e-6)
    assert call(monkeypatch, folder, "--seconds", "1e-5") == 0
    assert not (folder / "model").exists()
    assert call(monkeypatch, folder) == 0
    said = capsys.readouterr().out
    assert "going on after step 1 and" in said
    assert "step 2: text" in said
    assert "at two_hops" in said
    note = json.loads((folder / "model" / "training.json").read_text())
    assert note["program"] == command.PROGRAM
    assert note["tokens"] == 2 * 2 * 96
    assert set(note["answered_by_kind"]) == {"one_hop", "two_hops", "few_shot", "unknown"}
    assert watched_model(folder / "model").shape == SHAPE
