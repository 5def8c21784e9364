"""How much the queries of a layer attend to each key."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights
from engine_adapters.runner.model.norm import Norm
from engine_adapters.runner.model.projection import Projection
from engine_adapters.runner.model.rotary import RotaryTable, rotate

_WEIGHTS_MAX = 16 * 1024 * 1024
"""Attention weights that are in memory at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAttention:
    """Norm, query projection and rotation of one layer. Immutable: threads may share it."""

    norm: Norm
    query: Projection
    rotary: RotaryTable | None
    head_dim: int

    @classmethod
    def of_layer(
        cls, weights: LayerWeights, config: ModelConfig, rotary: RotaryTable | None
    ) -> "QueryAttention":
        """That of all heads; it shares the weights."""
        return cls(
            norm=weights.attention_norm,
            query=weights.query_key_value.outputs(0, config.head_count * config.head_dim),
            rotary=rotary,
            head_dim=config.head_dim,
        )

    @torch.inference_mode()
    def received(self, hidden: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
        """[keys], float32: attention that each key receives, summed over all rows and heads.

        ``hidden`` [rows, hidden_size] is what the layer is given of the tokens at ``positions``
        [rows], int64. ``keys`` [keys, kv_heads, head_dim] are rotated, the first one at position
        0; a row sees those up to its own position.
        """
        queries = self.query.apply(self.norm.apply(hidden)).view(len(hidden), -1, self.head_dim)
        if self.rotary is not None:
            queries = rotate(queries, self.rotary.at(positions))
        key_count, kv_heads, _ = keys.shape
        head_count = queries.shape[1]
        turned = keys.permute(1, 2, 0)
        total = torch.zeros(key_count, dtype=torch.float32, device=hidden.device)
        at_once = max(1, _WEIGHTS_MAX // (head_count * key_count))
        for first in range(0, len(hidden), at_once):
            rows = queries[first : first + at_once]
            # Neighbouring heads share a key head.
            grouped = rows.reshape(len(rows), kv_heads, -1, self.head_dim)
            grouped = grouped.permute(1, 2, 0, 3).reshape(kv_heads, -1, self.head_dim)
            scores = torch.bmm(grouped, turned).float() / self.head_dim**0.5
            scores = scores.view(head_count, len(rows), key_count)
            seen = torch.arange(key_count, device=hidden.device)
            hides = seen > positions[first : first + at_once].unsqueeze(1)
            total += scores.masked_fill_(hides, -torch.inf).softmax(-1).sum(dim=(0, 1))
        return total
