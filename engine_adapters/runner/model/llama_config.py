"""Configs of Llama and Mistral models. Pure."""

from engine_adapters.runner.model.config_fields import (
    Fields,
    dtype_name,
    flag,
    integer,
    number,
    stop_tokens,
)
from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.rotary import LinearScaling, Llama3Scaling, RotaryConfig


def parse_llama(fields: Fields) -> ModelConfig:
    """Validates the fields of a Llama or Mistral config; raises ModelError."""
    _refuse_unsupported(fields)
    hidden_size = integer(fields, "hidden_size")
    head_count = integer(fields, "num_attention_heads")
    config = ModelConfig(
        family=Family.LLAMA,
        vocab_size=integer(fields, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=integer(fields, "intermediate_size"),
        layer_count=integer(fields, "num_hidden_layers"),
        head_count=head_count,
        kv_head_count=integer(fields, "num_key_value_heads", head_count),
        head_dim=integer(fields, "head_dim", hidden_size // head_count),
        norm_epsilon=number(fields, "rms_norm_eps", 1e-6),
        position_count=integer(fields, "max_position_embeddings", 2048),
        rotary=_parse_rotary(fields),
        has_tied_embeddings=flag(fields, "tie_word_embeddings", default=False),
        has_attention_bias=flag(fields, "attention_bias", default=False),
        has_mlp_bias=flag(fields, "mlp_bias", default=False),
        dtype=dtype_name(fields),
        stop_token_ids=stop_tokens(fields),
    )
    if config.head_count % config.kv_head_count:
        raise ModelError(
            f"num_attention_heads {config.head_count} is not a multiple of "
            f"num_key_value_heads {config.kv_head_count}"
        )
    if config.head_dim % 2:
        raise ModelError(f"head_dim must be even, not {config.head_dim}")
    return config


def _refuse_unsupported(fields: Fields) -> None:
    activation = fields.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"hidden_act {activation!r} is not supported, only 'silu'")
    if fields.get("sliding_window") is not None:
        window = integer(fields, "sliding_window")
        positions = integer(fields, "max_position_embeddings", 2048)
        if window < positions:
            raise ModelError(
                f"sliding_window {window} is not supported: it is shorter than the "
                f"{positions} positions of the model"
            )


def _parse_rotary(fields: Fields) -> RotaryConfig:
    """Reads ``rope_parameters`` or the older pair ``rope_theta`` and ``rope_scaling``."""
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ModelError("rope parameters must be a JSON object")
    theta = number(rope, "rope_theta", number(fields, "rope_theta", 10_000.0))
    for source in (rope, fields):
        if number(source, "partial_rotary_factor", 1.0) != 1.0:
            raise ModelError("partial_rotary_factor other than 1 is not supported")
    match rope.get("rope_type", rope.get("type", "default")):
        case "default":
            return RotaryConfig(theta=theta)
        case "linear":
            scaling = LinearScaling(factor=number(rope, "factor"))
            return RotaryConfig(theta=theta, scaling=scaling)
        case "llama3":
            return RotaryConfig(theta=theta, scaling=_parse_llama3(rope))
        case other:
            raise ModelError(
                f"rope type {other!r} is not supported, only default, linear and llama3"
            )


def _parse_llama3(rope: Fields) -> Llama3Scaling:
    return Llama3Scaling(
        factor=number(rope, "factor"),
        low_frequency_factor=number(rope, "low_freq_factor"),
        high_frequency_factor=number(rope, "high_freq_factor"),
        original_positions=integer(rope, "original_max_position_embeddings"),
    )
