"""One pass over the tokens of a step, layer after layer, with its attention."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention

from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights, ModelWeights
from engine_adapters.runner.model.rotary import Angles, rotate
from engine_adapters.runner.model.step import ScatteredSegment, Segment, StateSink


def causal_mask(query_count: int, key_count: int, device: torch.device) -> Tensor | None:
    """Which keys each of the last ``query_count`` of ``key_count`` tokens may see.

    Shape [query_count, key_count], bool. None where no mask is needed: a single query
    sees everything, and a square is what the kernels mask by themselves.
    """
    if query_count in {1, key_count}:
        return None
    visible = torch.ones(query_count, key_count, dtype=torch.bool, device=device)
    return visible.tril_(key_count - query_count)


def scattered_mask(positions: Tensor, first_key: int, stop_key: int) -> Tensor | None:
    """Which keys from ``first_key`` to ``stop_key - 1`` tokens at ``positions`` may see.

    Shape [positions, keys], bool. ``positions`` is [tokens], int64, and ends with
    ``stop_key - 1``. None where a single token sees everything.
    """
    if len(positions) == 1:
        return None
    keys = torch.arange(first_key, stop_key, device=positions.device)
    return keys <= positions.unsqueeze(1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention output [queries, heads, head_dim].

    ``queries`` is [queries, heads, head_dim]; ``keys`` and ``values`` are [tokens,
    kv_heads, head_dim] and end with the last query's own token. ``mask`` is that of
    ``causal_mask`` or ``scattered_mask`` for the same tokens.
    """
    output = scaled_dot_product_attention(
        queries.transpose(0, 1).unsqueeze(0),
        keys.transpose(0, 1).unsqueeze(0),
        values.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None and queries.shape[0] > 1,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return output.squeeze(0).transpose(0, 1)


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment: the slots of its tokens, the first slot that they see, how many, and the mask."""

    rows: slice
    slots: Tensor | None
    """None for those that follow each other, up to the last one that they see."""
    first_slot: int
    key_count: int
    mask: Tensor | None

    @classmethod
    def of(cls, segment: Segment, positions: Tensor) -> "_Part":
        """``positions`` are those of its tokens."""
        stop = segment.stop_position
        if not isinstance(segment, ScatteredSegment):
            mask = causal_mask(segment.token_count, stop, positions.device)
            return cls(segment.rows, None, segment.first_slot, stop, mask)
        first_key = segment.first_key
        return cls(
            segment.rows,
            segment.first_slot + positions,
            segment.first_slot + first_key,
            stop - first_key,
            scattered_mask(positions, first_key, stop),
        )

    def write(self, cache: KvCache, layer: int, keys: Tensor, values: Tensor) -> None:
        """Its keys and values of a layer go into the cache."""
        if self.slots is None:
            first_slot = self.first_slot + self.key_count - len(keys)
            cache.write(layer, first_slot, keys, values)
        else:
            cache.scatter(layer, self.slots, keys, values)


class ForwardPass:
    """May rest between two layers, for as long as it likes: other passes may run meanwhile.

    One thread only. A pass that nobody runs any further needs no end; the cache then holds
    states of its tokens in the layers that it has run.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        hidden: Tensor,
        segments: Sequence[Segment],
        *,
        positions: Tensor,
        angles: Angles | None,
        cache: KvCache,
        sink: StateSink,
    ) -> None:
        """``hidden`` [rows, hidden_size] are the tokens of ``segments``, at ``positions``."""
        self.next_layer = 0
        """The first layer that was not run."""
        self._config = config
        self._weights = weights
        self._hidden = hidden
        self._parts = [_Part.of(segment, positions[segment.rows]) for segment in segments]
        self._angles = angles
        self._cache = cache
        self._sink = sink

    @property
    def hidden(self) -> Tensor:
        """The inputs of ``next_layer``: [rows, hidden_size]."""
        return self._hidden

    @torch.inference_mode()
    def run(self, layer_stop: int) -> None:
        """Runs the layers before ``layer_stop`` that were not run, and shows each to the sink."""
        for index in range(self.next_layer, layer_stop):
            layer = self._weights.layers[index]
            hidden = self._hidden + self._attention(index, layer)
            self._hidden = hidden + layer.mlp.apply(layer.mlp_norm.apply(hidden))
            self.next_layer = index + 1

    @torch.inference_mode()
    def logits(self, rows: Sequence[int]) -> Tensor:
        """[len(rows), vocab_size], float32, once all layers were run."""
        chosen = torch.tensor(rows, dtype=torch.int64, device=self._hidden.device)
        normed = self._weights.final_norm.apply(self._hidden[chosen])
        return linear(normed, self._weights.output).float()

    def _attention(self, index: int, layer: LayerWeights) -> Tensor:
        config, hidden = self._config, self._hidden
        fused = layer.query_key_value.apply(layer.attention_norm.apply(hidden))
        fused = fused.view(len(hidden), -1, config.head_dim)
        queries, keys, values = torch.split(
            fused, [config.head_count, config.kv_head_count, config.kv_head_count], dim=1
        )
        self._sink.take(index, hidden, keys, values)
        if self._angles is not None:
            queries = rotate(queries, self._angles)
            keys = rotate(keys, self._angles)
        output = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for part in self._parts:
            part.write(self._cache, index, keys[part.rows], values[part.rows])
            history = self._cache.history(index, part.first_slot, part.key_count)
            output[part.rows] = attend(queries[part.rows], *history, part.mask)
        return layer.attention_output.apply(output.flatten(1))
