"""The architecture of a model, read from a Hugging Face ``config.json``.

Everything that would change the numbers and is not implemented is refused: a model
that loads is a model whose logits are right.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.runner.errors import ModelError
from engine_adapters.runner.rotary import LinearScaling, Llama3Scaling, RotaryConfig

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and options of a Llama-family model. All counts are of the whole model."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_count: int
    head_count: int
    kv_head_count: int
    head_dim: int
    norm_epsilon: float
    position_count: int
    rotary: RotaryConfig
    has_tied_embeddings: bool
    has_attention_bias: bool
    has_mlp_bias: bool
    dtype: str
    stop_token_ids: tuple[int, ...]

    @classmethod
    def from_directory(cls, directory: Path) -> "ModelConfig":
        """Reads ``config.json``; raises ModelError."""
        path = directory / "config.json"
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise ModelError(f"{path} is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise ModelError(f"{path} must hold a JSON object")
        return cls.from_fields(fields)

    @classmethod
    def from_fields(cls, fields: Mapping[str, object]) -> "ModelConfig":
        """Validates the fields of a config; raises ModelError."""
        _refuse_unsupported(fields)
        hidden_size = _integer(fields, "hidden_size")
        head_count = _integer(fields, "num_attention_heads")
        config = cls(
            vocab_size=_integer(fields, "vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=_integer(fields, "intermediate_size"),
            layer_count=_integer(fields, "num_hidden_layers"),
            head_count=head_count,
            kv_head_count=_integer(fields, "num_key_value_heads", head_count),
            head_dim=_integer(fields, "head_dim", hidden_size // head_count),
            norm_epsilon=_number(fields, "rms_norm_eps", 1e-6),
            position_count=_integer(fields, "max_position_embeddings", 2048),
            rotary=_parse_rotary(fields),
            has_tied_embeddings=_flag(fields, "tie_word_embeddings"),
            has_attention_bias=_flag(fields, "attention_bias"),
            has_mlp_bias=_flag(fields, "mlp_bias"),
            dtype=_parse_dtype(fields),
            stop_token_ids=_parse_stop_tokens(fields),
        )
        if config.head_count % config.kv_head_count:
            raise ModelError(
                f"num_attention_heads {config.head_count} is not a multiple of "
                f"num_key_value_heads {config.kv_head_count}"
            )
        if config.head_dim % 2:
            raise ModelError(f"head_dim must be even, not {config.head_dim}")
        return config


def _refuse_unsupported(fields: Mapping[str, object]) -> None:
    architectures = fields.get("architectures")
    name = architectures[0] if isinstance(architectures, list) and architectures else architectures
    if name not in ARCHITECTURES:
        raise ModelError(f"architecture {name!r} is not one of {', '.join(ARCHITECTURES)}")
    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"hidden_act {activation!r} is not supported, only 'silu'")
    if fields.get("quantization_config") is not None:
        raise ModelError("quantized weights are not supported (quantization_config is set)")
    if fields.get("sliding_window") is not None:
        window = _integer(fields, "sliding_window")
        positions = _integer(fields, "max_position_embeddings", 2048)
        if window < positions:
            raise ModelError(
                f"sliding_window {window} is not supported: it is shorter than the "
                f"{positions} positions of the model"
            )


def _parse_rotary(fields: Mapping[str, object]) -> RotaryConfig:
    """Reads ``rope_parameters`` or the older pair ``rope_theta`` and ``rope_scaling``."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ModelError("rope parameters must be a JSON object")
    theta = _number(rope, "rope_theta", _number(fields, "rope_theta", 10_000.0))
    for source in (rope, fields):
        if _number(source, "partial_rotary_factor", 1.0) != 1.0:
            raise ModelError("partial_rotary_factor other than 1 is not supported")
    match rope.get("rope_type", rope.get("type", "default")):
        case "default":
            return RotaryConfig(theta=theta)
        case "linear":
            scaling = LinearScaling(factor=_number(rope, "factor"))
            return RotaryConfig(theta=theta, scaling=scaling)
        case "llama3":
            return RotaryConfig(theta=theta, scaling=_parse_llama3(rope))
        case other:
            raise ModelError(
                f"rope type {other!r} is not supported, only default, linear and llama3"
            )


def _parse_llama3(rope: Mapping[str, object]) -> Llama3Scaling:
    return Llama3Scaling(
        factor=_number(rope, "factor"),
        low_frequency_factor=_number(rope, "low_freq_factor"),
        high_frequency_factor=_number(rope, "high_freq_factor"),
        original_positions=_integer(rope, "original_max_position_embeddings"),
    )


def _parse_dtype(fields: Mapping[str, object]) -> str:
    dtype = fields.get("dtype") or fields.get("torch_dtype") or "float32"
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    return str(dtype)


def _parse_stop_tokens(fields: Mapping[str, object]) -> tuple[int, ...]:
    value = fields.get("eos_token_id")
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(token, int) for token in values):
        raise ModelError(f"eos_token_id must be a token id or a list of them, not {value!r}")
    return tuple(values)


def _integer(fields: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"{name} must be a positive integer, not {value!r}")
    return value


def _number(fields: Mapping[str, object], name: str, default: float | None = None) -> float:
    value = fields.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ModelError(f"{name} must be a positive number, not {value!r}")
    return float(value)


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise ModelError(f"{name} must be true or false, not {value!r}")
    return value
