from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_adapters.runner.model.config_file import parse_config
from engine_adapters.runner.model.fingerprint import fingerprint, model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.rotary import LinearScaling, RotaryConfig
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Rotary, StateKind
from tests.engine_adapters.runner.checkpoints import write_llama


def test_equal_directories_have_equal_fingerprints(tmp_path: Path) -> None:
    prints = []
    for name in ("first", "second"):
        write_llama(tmp_path / name)
        model = Model.from_directory(tmp_path / name)
        prints.append(model_fingerprint(tmp_path / name, model.config))
    assert prints[0] == prints[1]
    assert len(prints[0]) == 64


def test_one_changed_bit_of_the_weights_is_another_model(tmp_path: Path) -> None:
    write_llama(tmp_path)
    config = Model.from_directory(tmp_path).config
    before = model_fingerprint(tmp_path, config)
    path = tmp_path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert model_fingerprint(tmp_path, config) != before


@pytest.mark.parametrize(
    "changes",
    [
        {"rotary": RotaryConfig(theta=1.0)},
        {"rotary": RotaryConfig(theta=10_000.0, scaling=LinearScaling(factor=2.0))},
        {"norm_epsilon": 1e-3},
        {"head_count": 2},
        {"kv_head_count": 1},
        {"head_dim": 4},
        {"has_attention_bias": True},
        {"rotary": None},
        {"family": Family.OPT},
    ],
)
def test_what_changes_states_changes_the_fingerprint(changes: dict[str, Any], model: Model) -> None:
    changed = replace(model.config, **changes)
    assert fingerprint(changed, ["digest"]) != fingerprint(model.config, ["digest"])


def test_what_does_not_change_states_does_not(model: Model) -> None:
    changed = replace(model.config, stop_token_ids=(1,), position_count=9)
    assert fingerprint(changed, ["digest"]) == fingerprint(model.config, ["digest"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "6dd10b8e469e5f5bdbabefff75736f6480774a9e12f092d4220c8cd53c9a8a6f"),
        (
            {
                "attention_bias": True,
                "num_key_value_heads": 2,
                "rope_parameters": {"rope_type": "linear", "factor": 2.0},
            },
            "2e359eb07283fa210ea95a73792072bd865549a8fd1cf916ebf7ba0f0a1c1acd",
        ),
    ],
)
def test_states_of_earlier_versions_are_found(changes: dict[str, Any], expected: str) -> None:
    """Change these only together with ADAPTER_VERSION, when the states themselves change."""
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **changes,
    }
    assert fingerprint(parse_config(fields), ["digest"]) == expected


def test_layout_says_what_is_stored(model: Model, directory: Path) -> None:
    layout = StateFormat.of_directory(model, directory).layout
    assert layout.chunk_tokens == 64
    assert layout.rotary is Rotary.UNROTATED
    assert layout.dtype == "float32"
    assert [layer.kind for layer in layout.layers] == [StateKind.KV] * 3
    assert layout.layers[0].token_bytes == 2 * 2 * 8 * 4


def test_dtype_is_part_of_the_layout(model: Model, directory: Path) -> None:
    narrow = Model.from_directory(directory, dtype=torch.bfloat16)
    layouts = [StateFormat.of_directory(each, directory).layout for each in (model, narrow)]
    assert layouts[0].model == layouts[1].model
    assert layouts[0].layout_id != layouts[1].layout_id
