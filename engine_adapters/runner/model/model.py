"""A model: its weights, and the passes over the tokens of one step."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import embedding

from engine_adapters.runner.model.config_file import read_config
from engine_adapters.runner.model.forward_pass import ForwardPass
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.kv_projection import KvProjection
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.query_attention import QueryAttention
from engine_adapters.runner.model.rotary import RotaryTable
from engine_adapters.runner.model.step import ScatteredSegment, Segment, StateSink
from engine_adapters.runner.model.weights import load_weights


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
    ) -> Self:
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
    def begin_pass(
        self,
        token_ids: Sequence[int],
        segments: Sequence[Segment],
        *,
        cache: KvCache,
        sink: StateSink,
    ) -> ForwardPass:
        """A pass over the tokens that has computed no layer yet; tells the sink that it begins.

        ``token_ids`` are those of all segments in row order. Before a layer is run, the states
        of everything before each segment must lie in that layer of the cache, and of scattered
        ones everything that they see between their own tokens.
        """
        positions = torch.cat(
            [torch.arange(one.start, one.stop) for part in segments for one in part.ranges]
        ).to(self.device)
        hidden = self._embed(token_ids, positions)
        sink.begin_step([part for part in segments if not isinstance(part, ScatteredSegment)])
        return ForwardPass(
            self.config,
            self._weights,
            hidden,
            segments,
            positions=positions,
            angles=None if self.rotary is None else self.rotary.at(positions),
            cache=cache,
            sink=sink,
        )

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

        As ``begin_pass``, and then all layers at once. Logits are [len(logit_rows), vocab_size],
        float32.

        With ``layer_stop`` only the layers below it run, as when the first layers of a
        history are recomputed (HCache, section 4.1.2); there are no logits then, and
        ``logit_rows`` must be empty. Raises ValueError for other arguments.
        """
        layer_count = len(self._weights.layers)
        if layer_stop is not None and (logit_rows or not 0 <= layer_stop <= layer_count):
            raise ValueError(
                f"layer_stop must be 0 to {layer_count} and without logit_rows, "
                f"not {layer_stop} with {len(logit_rows)} rows"
            )
        step = self.begin_pass(token_ids, segments, cache=cache, sink=sink)
        step.run(layer_count if layer_stop is None else layer_stop)
        sink.end_step()
        if layer_stop is not None:
            return torch.empty(0, self.config.vocab_size, device=self.device)
        return step.logits(logit_rows)

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

    def query_attention(self, layer: int) -> QueryAttention:
        """What tells how much the queries of ``layer`` attend to each key."""
        return QueryAttention.of_layer(self._weights.layers[layer], self.config, self.rotary)

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
