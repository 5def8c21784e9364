"""The forward pass of a Llama-family model over the tokens of one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, silu

from engine_adapters.runner.attention import attend, causal_mask
from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.model_config import ModelConfig
from engine_adapters.runner.rotary import Angles, RotaryTable, rotate
from engine_adapters.runner.step import Segment, StateSink
from engine_adapters.runner.weights import LayerWeights, ModelWeights, Projection, load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepContext:
    """What every layer of a step shares; ``masks`` has one entry per segment."""

    segments: Sequence[Segment]
    masks: Sequence[Tensor | None]
    angles: Angles
    cache: KvCache
    sink: StateSink


class Model:
    """Weights and the functions over them. Stateless between calls."""

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self.rotary = RotaryTable(
            config.rotary,
            head_dim=config.head_dim,
            position_count=config.position_count,
            dtype=self.dtype,
            device=self.device,
        )
        self._weights = weights

    @classmethod
    def from_directory(
        cls, directory: Path, *, dtype: torch.dtype | None = None, device: str = "cpu"
    ) -> "Model":
        """Loads a Hugging Face model directory; ``dtype`` defaults to that of its config.

        Raises ModelError for whatever cannot be run exactly.
        """
        config = ModelConfig.from_directory(directory)
        chosen = getattr(torch, config.dtype) if dtype is None else dtype
        weights = load_weights(directory, config, dtype=chosen, device=torch.device(device))
        return cls(config, weights)

    def make_cache(self, slot_count: int) -> KvCache:
        """A cache of ``slot_count`` tokens in the model's dtype on its device."""
        return KvCache(self.config, slot_count=slot_count, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Sequence[int],
        segments: Sequence[Segment],
        *,
        cache: KvCache,
        sink: StateSink,
        logit_rows: Sequence[int],
    ) -> Tensor:
        """Computes the tokens, extends the cache, and returns logits of ``logit_rows``.

        ``token_ids`` are those of all segments in row order; the states of everything
        before each segment must lie in the cache. Logits are [len(logit_rows),
        vocab_size], float32.
        """
        positions = torch.cat(
            [torch.arange(part.first_position, part.stop_position) for part in segments]
        ).to(self.device)
        context = _StepContext(
            segments=segments,
            masks=[
                causal_mask(part.token_count, part.stop_position, self.device) for part in segments
            ],
            angles=self.rotary.at(positions),
            cache=cache,
            sink=sink,
        )
        rows = torch.tensor(token_ids, dtype=torch.int64, device=self.device)
        hidden = embedding(rows, self._weights.embedding)
        sink.begin_step(segments)
        for index, layer in enumerate(self._weights.layers):
            hidden = hidden + self._attention(index, layer, hidden, context)
            hidden = hidden + self._mlp(layer, hidden)
        sink.end_step()
        wanted = hidden[torch.tensor(logit_rows, dtype=torch.int64, device=self.device)]
        return linear(self._norm(wanted, self._weights.final_norm), self._weights.output).float()

    def _attention(
        self, index: int, layer: LayerWeights, hidden: Tensor, context: _StepContext
    ) -> Tensor:
        config = self.config
        fused = _project(self._norm(hidden, layer.attention_norm), layer.query_key_value)
        fused = fused.view(len(hidden), -1, config.head_dim)
        queries, keys, values = torch.split(
            fused, [config.head_count, config.kv_head_count, config.kv_head_count], dim=1
        )
        context.sink.take(index, keys, values)
        queries = rotate(queries, context.angles)
        keys = rotate(keys, context.angles)
        output = torch.empty_like(queries)
        for part, mask in zip(context.segments, context.masks, strict=True):
            context.cache.write(
                index, part.first_slot + part.first_position, keys[part.rows], values[part.rows]
            )
            history = context.cache.history(index, part.first_slot, part.stop_position)
            output[part.rows] = attend(queries[part.rows], *history, mask)
        return _project(output.flatten(1), layer.attention_output)

    def _mlp(self, layer: LayerWeights, hidden: Tensor) -> Tensor:
        gate, up = _project(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
        return _project(silu(gate) * up, layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """RMS norm; the mean square is taken in float32 whatever the dtype."""
        exact = hidden.float()
        scale = torch.rsqrt(exact.square().mean(-1, keepdim=True) + self.config.norm_epsilon)
        return weight * (exact * scale).to(hidden.dtype)


def _project(inputs: Tensor, projection: Projection) -> Tensor:
    return linear(inputs, projection.weight, projection.bias)
