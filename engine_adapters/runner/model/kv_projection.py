"""Keys and values of a layer, made from its stored inputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights
from engine_adapters.runner.model.norm import Norm
from engine_adapters.runner.model.projection import Projection
from engine_adapters.runner.model.rotary import RotaryTable, rotate_in_place


@dataclass(frozen=True, slots=True, kw_only=True)
class KvProjection:
    """Norm, key and value projection and rotation of one layer (HCache, section 3.1).

    ``rotary`` is None for a model whose positions are learned. Immutable: threads may
    share it.
    """

    norm: Norm
    key: Projection
    value: Projection
    rotary: RotaryTable | None

    @classmethod
    def of_layer(
        cls,
        weights: LayerWeights,
        config: ModelConfig,
        rotary: RotaryTable | None,
        *,
        first_head: int,
        stop_head: int,
    ) -> "KvProjection":
        """That of key heads ``first_head`` to ``stop_head`` - 1; it shares the weights."""
        fused, head_dim = weights.query_key_value, config.head_dim
        first_key = config.head_count
        first_value = first_key + config.kv_head_count

        def heads_from(row_head: int) -> Projection:
            return fused.outputs(
                (row_head + first_head) * head_dim, (row_head + stop_head) * head_dim
            )

        return cls(
            norm=weights.attention_norm,
            key=heads_from(first_key),
            value=heads_from(first_value),
            rotary=rotary,
        )

    @torch.inference_mode()
    def apply(self, hidden: Tensor, *, first_position: int, keys: Tensor, values: Tensor) -> None:
        """Writes the keys, rotated, and values of ``hidden`` into ``keys`` and ``values``.

        ``hidden`` is [tokens, hidden_size] in the weights' dtype on their device, of the
        tokens from ``first_position`` on. The results are [tokens, heads, head_dim]:
        their tokens may lie apart, but not the heads of one (RuntimeError).
        """
        normed = self.norm.apply(hidden)
        token_count = len(hidden)
        # view, not flatten: what could only be written as a copy must fail.
        self.value.apply_into(normed, values.view(token_count, -1))
        self.key.apply_into(normed, keys.view(token_count, -1))
        if self.rotary is not None:
            angles = self.rotary.between(first_position, first_position + token_count)
            rotate_in_place(keys, angles)
