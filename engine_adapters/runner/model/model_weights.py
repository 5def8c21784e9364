"""The parts of a model as the forward pass wants them."""

from dataclasses import dataclass

from torch import Tensor

from engine_adapters.runner.model.mlp import Mlp
from engine_adapters.runner.model.norm import Norm
from engine_adapters.runner.model.projection import Projection


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; query, key and value are fused: one multiplication instead of three."""

    attention_norm: Norm
    query_key_value: Projection
    attention_output: Projection
    mlp_norm: Norm
    mlp: Mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """All weights; ``embedding`` and ``output`` have shape [vocab_size, hidden_size].

    ``positions`` [position_count, hidden_size] is None for a model that rotates.
    """

    embedding: Tensor
    positions: Tensor | None
    layers: tuple[LayerWeights, ...]
    final_norm: Norm
    output: Tensor
