"""The architecture of a model in the runner's own words."""

from dataclasses import dataclass
from enum import StrEnum

from engine_adapters.runner.model.rotary import RotaryConfig

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of weights and states, by torch's names."""


class Family(StrEnum):
    """Which parts a model is built from."""

    LLAMA = "llama"
    """Rotary positions, RMS norms, a gated MLP; Mistral too."""

    OPT = "opt"
    """Learned absolute positions, layer norms with bias, ReLU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes and options of a model. All counts are of the whole model.

    ``rotary`` is None for a model whose positions are learned.
    """

    family: Family
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_count: int
    head_count: int
    kv_head_count: int
    head_dim: int
    norm_epsilon: float
    position_count: int
    rotary: RotaryConfig | None
    has_tied_embeddings: bool
    has_attention_bias: bool
    has_mlp_bias: bool
    dtype: str
    stop_token_ids: tuple[int, ...]
