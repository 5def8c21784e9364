"""Where the parts of an OPT model are in its files."""

from engine_adapters.runner.model.mlp import ReluMlp
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights, ModelWeights
from engine_adapters.runner.model.norm import LayerNorm
from engine_adapters.runner.model.tensor_pool import TensorPool

POSITION_OFFSET = 2
"""Rows before that of position 0 in the table of positions; no token uses them."""

PREFIX = "model.decoder."


def assemble_opt(pool: TensorPool, config: ModelConfig) -> ModelWeights:
    """Takes the whole model out of ``pool``; raises ModelError."""
    hidden = config.hidden_size
    embedding = pool.take(f"{PREFIX}embed_tokens.weight", config.vocab_size, hidden)
    positions = pool.take(
        f"{PREFIX}embed_positions.weight", config.position_count + POSITION_OFFSET, hidden
    )
    return ModelWeights(
        embedding=embedding,
        positions=positions[POSITION_OFFSET:],
        layers=tuple(_layer(pool, config, index) for index in range(config.layer_count)),
        final_norm=_norm(pool, config, f"{PREFIX}final_layer_norm"),
        output=pool.take_output(embedding, is_tied=config.has_tied_embeddings),
    )


def _layer(pool: TensorPool, config: ModelConfig, index: int) -> LayerWeights:
    prefix = f"{PREFIX}layers.{index}."
    hidden, inner = config.hidden_size, config.intermediate_size
    attention = f"{prefix}self_attn."
    return LayerWeights(
        attention_norm=_norm(pool, config, f"{prefix}self_attn_layer_norm"),
        query_key_value=pool.take_projection(
            [(f"{attention}{name}_proj", hidden) for name in "qkv"], hidden, has_bias=True
        ),
        attention_output=pool.take_projection(
            [(f"{attention}out_proj", hidden)], hidden, has_bias=True
        ),
        mlp_norm=_norm(pool, config, f"{prefix}final_layer_norm"),
        mlp=ReluMlp(
            up=pool.take_projection([(f"{prefix}fc1", inner)], hidden, has_bias=True),
            down=pool.take_projection([(f"{prefix}fc2", hidden)], inner, has_bias=True),
        ),
    )


def _norm(pool: TensorPool, config: ModelConfig, name: str) -> LayerNorm:
    return LayerNorm(
        weight=pool.take(f"{name}.weight", config.hidden_size),
        bias=pool.take(f"{name}.bias", config.hidden_size),
        epsilon=config.norm_epsilon,
    )
