"""What a training leaves."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks.training import checkpoint
from benchmarks.training.checkpoint import NOTE_FILE, write_checkpoint
from benchmarks.training.network import Llama
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.benchmarks.quality.small import SHAPE
from tests.benchmarks.training.small_training import PREPARED


def test_the_runner_loads_it(tmp_path: Path) -> None:
    network = Llama(SHAPE, seed=1)
    write_checkpoint(tmp_path / "model", network, PREPARED.tokenizer, {"steps": 1})
    model = Model.from_directory(tmp_path / "model")
    assert model.dtype == torch.bfloat16
    assert model.config.layer_count == SHAPE.layer_count
    Tokenizer.from_directory(tmp_path / "model")
    assert json.loads((tmp_path / "model" / NOTE_FILE).read_text()) == {"steps": 1}


def test_a_large_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "CHECKPOINT_BYTES_MAX", 1000)
    network = Llama(SHAPE, seed=1)
    with pytest.raises(ValueError, match="more than 1000"):
        write_checkpoint(tmp_path / "model", network, PREPARED.tokenizer, {})
    assert not (tmp_path / "model").exists()
