import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.weights import INDEX_FILE, SINGLE_FILE, weight_files
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_llama(tmp_path, num_hidden_layers=1)
    return tmp_path


def change(directory: Path, **changes: torch.Tensor | None) -> None:
    """Rewrites the weights with tensors replaced, added, or (None) removed."""
    path = directory / SINGLE_FILE
    tensors = {**load_file(path), **changes}
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, path)


def test_sharded_files_are_listed_in_order(tmp_path: Path) -> None:
    write_llama(tmp_path, shard_bytes="20KB")
    paths = weight_files(tmp_path)
    assert len(paths) > 1
    assert paths == sorted(paths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.norm.weight": None}, "no tensor model.norm.weight"),
        ({"model.norm.weight": torch.ones(5)}, r"shape \(5,\), expected \(32,\)"),
        ({"model.layers.0.lora_A": torch.ones(5)}, "1 unknown tensors, first .*lora_A"),
        ({"model.layers.1.mlp.up_proj.weight": torch.ones(5)}, "unknown tensors"),
    ],
)
def test_refuses_other_tensors(
    changes: dict[str, torch.Tensor | None], message: str, checkpoint: Path
) -> None:
    change(checkpoint, **changes)
    with pytest.raises(ModelError, match=message):
        Model.from_directory(checkpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.decoder.final_layer_norm.bias": None}, "no tensor .*final_layer_norm.bias"),
        ({"model.decoder.embed_positions.weight": torch.ones(512, 32)}, r"expected \(514, 32\)"),
        ({"model.decoder.project_in.weight": torch.ones(5)}, "1 unknown tensors"),
    ],
)
def test_refuses_other_tensors_of_opt(
    changes: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    write_opt(tmp_path, num_hidden_layers=1)
    change(tmp_path, **changes)
    with pytest.raises(ModelError, match=message):
        Model.from_directory(tmp_path)


def test_stored_frequencies_are_ignored(checkpoint: Path) -> None:
    change(checkpoint, **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)})
    assert Model.from_directory(checkpoint).config.layer_count == 1


def test_refuses_a_damaged_file(checkpoint: Path) -> None:
    (checkpoint / SINGLE_FILE).write_bytes(b"\x00" * 100)
    with pytest.raises(ModelError, match="cannot read"):
        Model.from_directory(checkpoint)


def test_refuses_a_directory_without_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds neither"):
        weight_files(tmp_path)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("{}", "is not a safetensors index"),
        ("{", "is not a safetensors index"),
        (json.dumps({"weight_map": {"x": "absent.safetensors"}}), "absent.safetensors"),
        (json.dumps({"weight_map": {"x": "../outside.safetensors"}}), "outside.safetensors"),
    ],
)
def test_refuses_a_broken_index(index: str, message: str, tmp_path: Path) -> None:
    (tmp_path.parent / "outside.safetensors").touch()
    (tmp_path / INDEX_FILE).write_text(index)
    with pytest.raises(ModelError, match=message):
        weight_files(tmp_path)
