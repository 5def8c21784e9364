"""What a training leaves."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.quality.training import checkpoint
from benchmarks.quality.training.checkpoint import NOTE_FILE, write_checkpoint
from benchmarks.quality.training.network import Llama
from benchmarks.quality.training.trainer import Trainer
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.benchmarks.quality.small import SHAPE
from tests.benchmarks.quality.training.test_trainer import PLAN, PREPARED


def test_the_runner_loads_it(tmp_path: Path) -> None:
    network = Llama(SHAPE, seed=1)
    trainer = Trainer(network, PLAN, PREPARED)
    trainer.make_step()
    prepared = replace(PREPARED, sources={"one": 3, "two": 4})
    write_checkpoint(tmp_path / "model", network, trainer, PLAN, prepared)
    model = Model.from_directory(tmp_path / "model")
    assert model.dtype == torch.bfloat16
    assert model.config.layer_count == SHAPE.layer_count
    Tokenizer.from_directory(tmp_path / "model")
    note = json.loads((tmp_path / "model" / NOTE_FILE).read_text())
    assert note["steps"] == 1
    assert note["tokens"] == 4 * 48
    assert list(note["recall_by_positions"]) == ["48", "128"]
    assert note["text_characters"] == 7


def test_a_large_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES_MAX", 1000)
    network = Llama(SHAPE, seed=1)
    trainer = Trainer(network, PLAN, PREPARED)
    with pytest.raises(ValueError, match="more than 1000"):
        write_checkpoint(tmp_path / "model", network, trainer, PLAN, PREPARED)
    assert not (tmp_path / "model").exists()
