"""Configs of OPT models. Pure."""

from engine_adapters.runner.model.config_fields import (
    Fields,
    dtype_name,
    flag,
    integer,
    stop_tokens,
)
from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.model_config import Family, ModelConfig

NORM_EPSILON = 1e-5
"""Fixed by the architecture: no field of a config tells it."""

STOP_TOKEN_ID = 2
"""Ends a text unless the config names another."""


def parse_opt(fields: Fields) -> ModelConfig:
    """Validates the fields of an OPT config; raises ModelError."""
    _refuse_unsupported(fields)
    hidden_size = integer(fields, "hidden_size")
    head_count = integer(fields, "num_attention_heads")
    if hidden_size % head_count:
        raise ModelError(
            f"hidden_size {hidden_size} is not a multiple of num_attention_heads {head_count}"
        )
    return ModelConfig(
        family=Family.OPT,
        vocab_size=integer(fields, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=integer(fields, "ffn_dim"),
        layer_count=integer(fields, "num_hidden_layers"),
        head_count=head_count,
        kv_head_count=head_count,
        head_dim=hidden_size // head_count,
        norm_epsilon=NORM_EPSILON,
        position_count=integer(fields, "max_position_embeddings", 2048),
        rotary=None,
        has_tied_embeddings=flag(fields, "tie_word_embeddings", default=True),
        has_attention_bias=True,
        has_mlp_bias=True,
        dtype=dtype_name(fields),
        stop_token_ids=stop_tokens(fields, STOP_TOKEN_ID),
    )


def _refuse_unsupported(fields: Fields) -> None:
    activation = fields.get("activation_function", "relu")
    if activation != "relu":
        raise ModelError(f"activation_function {activation!r} is not supported, only 'relu'")
    for name, needed in (
        ("do_layer_norm_before", True),
        ("enable_bias", True),
        ("layer_norm_elementwise_affine", True),
        ("_remove_final_layer_norm", False),
    ):
        if flag(fields, name, default=needed) is not needed:
            raise ModelError(f"an OPT model with {name} {not needed} is not supported")
    hidden_size = integer(fields, "hidden_size")
    embedding_size = integer(fields, "word_embed_proj_dim", hidden_size)
    if embedding_size != hidden_size:
        raise ModelError(
            f"word_embed_proj_dim {embedding_size} is not supported: it differs from "
            f"hidden_size {hidden_size}"
        )
