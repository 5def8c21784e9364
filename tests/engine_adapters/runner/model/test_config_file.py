import json
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.runner.model.config_file import parse_config, read_config
from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.rotary import LinearScaling, Llama3Scaling, RotaryConfig
from tests.engine_adapters.runner.checkpoints import LLAMA3_ROPE


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **changes,
    }


def test_defaults_are_those_of_hugging_face() -> None:
    config = parse_config(fields())
    assert config.kv_head_count == 4
    assert config.head_dim == 8
    assert config.norm_epsilon == 1e-6
    assert config.position_count == 2048
    assert config.family is Family.LLAMA
    assert config.rotary == RotaryConfig(theta=10_000)
    assert config.dtype == "float32"
    assert config.stop_token_ids == ()
    assert not config.has_tied_embeddings
    assert not config.has_attention_bias
    assert not config.has_mlp_bias


def test_newer_and_older_rope_fields_mean_the_same() -> None:
    scaling = {key: value for key, value in LLAMA3_ROPE.items() if key != "rope_theta"}
    newer = parse_config(fields(rope_parameters=LLAMA3_ROPE))
    older = parse_config(fields(rope_theta=10_000.0, rope_scaling=scaling))
    assert newer == older
    assert newer.rotary is not None
    assert isinstance(newer.rotary.scaling, Llama3Scaling)
    assert newer.rotary.scaling.original_positions == 64


def test_oldest_name_of_the_rope_type() -> None:
    config = parse_config(fields(rope_theta=7.0, rope_scaling={"type": "linear", "factor": 2}))
    assert config.rotary == RotaryConfig(theta=7.0, scaling=LinearScaling(factor=2.0))


@pytest.mark.parametrize(("value", "expected"), [(None, ()), (5, (5,)), ([5, 6], (5, 6))])
def test_stop_tokens(value: object, expected: tuple[int, ...]) -> None:
    assert parse_config(fields(eos_token_id=value)).stop_token_ids == expected


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_dtype_by_either_name(name: str) -> None:
    assert parse_config(fields(**{name: "bfloat16"})).dtype == "bfloat16"


def opt_fields(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["OPTForCausalLM"],
        "vocab_size": 100,
        "hidden_size": 32,
        "ffn_dim": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        **changes,
    }


def test_defaults_of_opt_are_those_of_hugging_face() -> None:
    config = parse_config(opt_fields())
    assert config.family is Family.OPT
    assert config.rotary is None
    assert config.kv_head_count == 4
    assert config.head_dim == 8
    assert config.intermediate_size == 64
    assert config.norm_epsilon == 1e-5
    assert config.position_count == 2048
    assert config.stop_token_ids == (2,)
    assert config.has_tied_embeddings
    assert config.has_attention_bias
    assert config.has_mlp_bias


def test_opt_may_have_no_stop_token() -> None:
    assert parse_config(opt_fields(eos_token_id=None)).stop_token_ids == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_function": "gelu"}, "activation_function 'gelu'"),
        ({"do_layer_norm_before": False}, "with do_layer_norm_before False is not supported"),
        ({"enable_bias": False}, "enable_bias False"),
        ({"layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine False"),
        ({"_remove_final_layer_norm": True}, "_remove_final_layer_norm True"),
        ({"word_embed_proj_dim": 16}, "word_embed_proj_dim 16 .* hidden_size 32"),
        ({"num_attention_heads": 5}, "hidden_size 32 is not a multiple"),
        ({"ffn_dim": None}, "ffn_dim must be"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
    ],
)
def test_refuses_other_opt_models(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_config(opt_fields(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "architecture 'GPT2LMHeadModel'"),
        ({"architectures": None}, "architecture None"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"sliding_window": 1024}, "sliding_window 1024"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "rope type 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor must be"),
        ({"rope_scaling": ["linear"]}, "rope parameters"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"num_attention_heads": 4, "num_key_value_heads": 3}, "not a multiple"),
        ({"head_dim": 7}, "head_dim must be even"),
        ({"vocab_size": 0}, "vocab_size must be a positive integer"),
        ({"vocab_size": True}, "vocab_size must be a positive integer"),
        ({"num_hidden_layers": None}, "num_hidden_layers must be"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a positive number"),
        ({"mlp_bias": 1}, "mlp_bias must be true or false"),
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
    ],
)
def test_refuses_what_would_be_wrong(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_config(fields(**changes))


def test_a_sliding_window_as_long_as_the_context_changes_nothing() -> None:
    wide = parse_config(fields(sliding_window=64, max_position_embeddings=64))
    assert wide == parse_config(fields(max_position_embeddings=64))


def test_reads_a_directory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(fields()))
    assert read_config(tmp_path) == parse_config(fields())


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot read"), ("{", "not JSON"), ("[]", "must hold a JSON object")],
)
def test_refuses_a_broken_file(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=message):
        read_config(tmp_path)
