"""The forward pass of a model over the tokens of one step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from engine_adapters.runner.model.attention import attend, causal_mask
from engine_adapters.runner.model.config_file import read_config
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.kv_projection import KvProjection
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import LayerWeights, ModelWeights
from engine_adapters.runner.model.rotary import Angles, RotaryTable, rotate
from engine_adapters.runner.model.step import Segment, StateSink
from engine_adapters.runner.model.weights import load_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepContext:
    """What every layer of a step shares; ``masks`` has one entry per segment."""

    segments: Sequence[Segment]
    masks: Sequence[Tensor | None]
    angles: Angles | None
    cache: KvCache
    sink: StateSink


class Model:
    """Weights and the functions over them. Stateless between calls.

    ``rotary`` is None for a model with learned absolute positions: its keys carry no
    rotation, and cannot be moved to other positions.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        self.config = config
        self.dtype = weights.embedding.dtype
        self.device = weights.embedding.device
        self.rotary: RotaryTable | None = None
        if config.rotary is not None:
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
        config = read_config(directory)
        chosen = getattr(torch, config.dtype) if dtype is None else dtype
        weights = load_weights(directory, config, dtype=chosen, device=torch.device(device))
        return cls(config, weights)

    def make_cache(self, slot_count: int) -> KvCache:
        """A cache of ``slot_count`` tokens in the model's dtype on its device."""
        return KvCache(self.config, slot_count=slot_count, dtype=self.dtype, device=self.device)

    def finish(self) -> None:
        """Waits until the device has carried out everything that was launched on it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @torch.inference_mode()
    def forward(
        self,
        token_ids: Sequence[int],
        segments: Sequence[Segment],
        *,
        cache: KvCache,
        sink: StateSink,
        logit_rows: Sequence[int],
        layer_stop: int | None = None,
    ) -> Tensor:
        """Computes the tokens, extends the cache, and returns logits of ``logit_rows``.

        ``token_ids`` are those of all segments in row order; the states of everything
        before each segment must lie in the cache. Logits are [len(logit_rows),
        vocab_size], float32.

        With ``layer_stop`` only the layers below it run, as when the first layers of a
        history are recomputed (HCache, section 4.1.2); there are no logits then, and
        ``logit_rows`` must be empty. Raises ValueError for other arguments.
        """
        layers = self._weights.layers
        if layer_stop is not None:
            if logit_rows or not 0 <= layer_stop <= len(layers):
                raise ValueError(
                    f"layer_stop must be 0 to {len(layers)} and without logit_rows, "
                    f"not {layer_stop} with {len(logit_rows)} rows"
                )
            layers = layers[:layer_stop]
        positions = torch.cat(
            [torch.arange(part.first_position, part.stop_position) for part in segments]
        ).to(self.device)
        context = _StepContext(
            segments=segments,
            masks=[
                causal_mask(part.token_count, part.stop_position, self.device) for part in segments
            ],
            angles=None if self.rotary is None else self.rotary.at(positions),
            cache=cache,
            sink=sink,
        )
        hidden = self._embed(token_ids, positions)
        sink.begin_step(segments)
        for index, layer in enumerate(layers):
            hidden = hidden + self._attention(index, layer, hidden, context)
            hidden = hidden + layer.mlp.apply(layer.mlp_norm.apply(hidden))
        sink.end_step()
        if layer_stop is not None:
            return torch.empty(0, self.config.vocab_size, device=self.device)
        wanted = hidden[torch.tensor(logit_rows, dtype=torch.int64, device=self.device)]
        return linear(self._weights.final_norm.apply(wanted), self._weights.output).float()

    def kv_projection(
        self, layer: int, *, first_head: int = 0, stop_head: int | None = None
    ) -> KvProjection:
        """What makes keys and values of ``layer`` from its inputs, for all its heads or some."""
        return KvProjection.of_layer(
            self._weights.layers[layer],
            self.config,
            self.rotary,
            first_head=first_head,
            stop_head=self.config.kv_head_count if stop_head is None else stop_head,
        )

    def project(
        self, layer: int, hidden: Tensor, *, first_position: int, keys: Tensor, values: Tensor
    ) -> None:
        """Restores keys and values of ``layer`` from its stored inputs (HCache, section 3.1).

        ``hidden`` [tokens, hidden_size] is what ``forward`` showed its sink of the tokens
        from ``first_position`` on. ``keys`` (rotated) and ``values`` are views [tokens,
        kv_heads, head_dim] of the cache; see ``KvProjection.apply``. Threads may project
        at the same time.
        """
        projection = self.kv_projection(layer)
        projection.apply(hidden, first_position=first_position, keys=keys, values=values)

    def _embed(self, token_ids: Sequence[int], positions: Tensor) -> Tensor:
        rows = torch.tensor(token_ids, dtype=torch.int64, device=self.device)
        hidden = embedding(rows, self._weights.embedding)
        if self._weights.positions is not None:
            hidden = hidden + embedding(positions, self._weights.positions)
        return hidden

    def _attention(
        self, index: int, layer: LayerWeights, hidden: Tensor, context: _StepContext
    ) -> Tensor:
        config = self.config
        fused = layer.query_key_value.apply(layer.attention_norm.apply(hidden))
        fused = fused.view(len(hidden), -1, config.head_dim)
        queries, keys, values = torch.split(
            fused, [config.head_count, config.kv_head_count, config.kv_head_count], dim=1
        )
        context.sink.take(index, hidden, keys, values)
        if context.angles is not None:
            queries = rotate(queries, context.angles)
            keys = rotate(keys, context.angles)
        output = torch.empty_like(queries, memory_format=torch.contiguous_format)
        for part, mask in zip(context.segments, context.masks, strict=True):
            context.cache.write(
                index, part.first_slot + part.first_position, keys[part.rows], values[part.rows]
            )
            history = context.cache.history(index, part.first_slot, part.stop_position)
            output[part.rows] = attend(queries[part.rows], *history, mask)
        return layer.attention_output.apply(output.flatten(1))
