"""Where the parts of a Llama model are in its files."""

from engine_adapters.runner.model.mlp import GatedMlp
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights, ModelWeights
from engine_adapters.runner.model.norm import RmsNorm
from engine_adapters.runner.model.tensor_pool import TensorPool


def assemble_llama(pool: TensorPool, config: ModelConfig) -> ModelWeights:
    """Takes the whole model out of ``pool``; raises ModelError."""
    embedding = pool.take("model.embed_tokens.weight", config.vocab_size, config.hidden_size)
    return ModelWeights(
        embedding=embedding,
        positions=None,
        layers=tuple(_layer(pool, config, index) for index in range(config.layer_count)),
        final_norm=_norm(pool, config, "model.norm"),
        output=pool.take_output(embedding, is_tied=config.has_tied_embeddings),
    )


def _layer(pool: TensorPool, config: ModelConfig, index: int) -> LayerWeights:
    prefix = f"model.layers.{index}."
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.head_count * config.head_dim
    states = config.kv_head_count * config.head_dim
    attention, mlp = f"{prefix}self_attn.", f"{prefix}mlp."
    return LayerWeights(
        attention_norm=_norm(pool, config, f"{prefix}input_layernorm"),
        query_key_value=pool.take_projection(
            [
                (f"{attention}{name}_proj", rows)
                for name, rows in (("q", queries), ("k", states), ("v", states))
            ],
            hidden,
            has_bias=config.has_attention_bias,
        ),
        attention_output=pool.take_projection(
            [(f"{attention}o_proj", hidden)], queries, has_bias=config.has_attention_bias
        ),
        mlp_norm=_norm(pool, config, f"{prefix}post_attention_layernorm"),
        mlp=GatedMlp(
            gate_up=pool.take_projection(
                [(f"{mlp}gate_proj", inner), (f"{mlp}up_proj", inner)],
                hidden,
                has_bias=config.has_mlp_bias,
            ),
            down=pool.take_projection(
                [(f"{mlp}down_proj", hidden)], inner, has_bias=config.has_mlp_bias
            ),
        ),
    )


def _norm(pool: TensorPool, config: ModelConfig, name: str) -> RmsNorm:
    weight = pool.take(f"{name}.weight", config.hidden_size)
    return RmsNorm(weight=weight, epsilon=config.norm_epsilon)
