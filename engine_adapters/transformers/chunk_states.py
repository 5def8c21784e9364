"""How the states of a cache lie in the chunks of the store."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine_adapters.transformers.support import TESTED_MODELS
from kvstored_client import LayerState, Placement, Region, StateKind, StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStates:
    """The layout that the store knows, and the shapes behind its bytes.

    A slice is [2, kv_heads, tokens, head_dim]: the keys of one layer as the model caches them, then
    its values. Keys are rotated where the model rotates them: a chunk fits at its place only, so
    every prefix begins at position 0.
    """

    layout: StateLayout
    kv_head_count: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of_model(
        cls, model: PreTrainedModel, fingerprint: str, *, chunk_tokens: int
    ) -> "ChunkStates":
        """Of a model that is not refused. Raises LayoutError for a layout that no store takes."""
        config = model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        state = LayerState(StateKind.KV, 2 * heads * dim * model.dtype.itemsize)
        layout = StateLayout(
            model=fingerprint,
            dtype=str(model.dtype).removeprefix("torch."),
            layers=(state,) * config.num_hidden_layers,
            chunk_tokens=chunk_tokens,
            rotary=TESTED_MODELS[config.model_type],
        )
        return cls(layout=layout, kv_head_count=heads, head_dim=dim, dtype=model.dtype)

    @property
    def chunk_stride(self) -> int:
        """Arena bytes of a chunk."""
        return Placement.contiguous_bytes(self.layout, 1)

    def is_shape_of(self, states: Sequence[tuple[Tensor, Tensor]]) -> bool:
        """Whether keys and values of all layers are those of one sequence of this model."""
        if len(states) != self.layout.layer_count:
            return False
        # A call that failed half-way and was tried again leaves more tokens in the first layers.
        shape = (1, self.kv_head_count, states[0][0].shape[-2], self.head_dim)
        return all(
            tensor.dtype is self.dtype and tensor.shape == shape
            for pair in states
            for tensor in pair
        )

    def empty(self, token_count: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """Room for the states of all layers: pairs of [1, kv_heads, tokens, head_dim]."""
        shape = (1, self.kv_head_count, token_count, self.head_dim)
        return [
            (
                torch.empty(shape, dtype=self.dtype, device=device),
                torch.empty(shape, dtype=self.dtype, device=device),
            )
            for _ in range(self.layout.layer_count)
        ]

    def load(
        self,
        region: Region,
        states: Sequence[tuple[Tensor, Tensor]],
        *,
        first_chunk: int,
        chunk_count: int,
    ) -> None:
        """Copies chunks from the start of a region to their places in ``states``."""
        stored = self._slices(region, chunk_count)
        for layer, pair in enumerate(states):
            for half, tensor in enumerate(pair):
                self._chunks(tensor, first_chunk, chunk_count).copy_(stored[:, layer, half])

    def save(
        self,
        region: Region,
        states: Sequence[tuple[Tensor, Tensor]],
        *,
        first_chunk: int,
        chunk_count: int,
    ) -> None:
        """The way back."""
        stored = self._slices(region, chunk_count)
        for layer, pair in enumerate(states):
            for half, tensor in enumerate(pair):
                stored[:, layer, half].copy_(self._chunks(tensor, first_chunk, chunk_count))

    def _chunks(self, tensor: Tensor, first_chunk: int, chunk_count: int) -> Tensor:
        """View [chunks, kv_heads, tokens, head_dim] of [1, kv_heads, all tokens, head_dim]."""
        tokens = self.layout.chunk_tokens
        part = tensor[0].narrow(1, first_chunk * tokens, chunk_count * tokens)
        shape = (self.kv_head_count, chunk_count, tokens, self.head_dim)
        return part.view(shape).transpose(0, 1)

    def _slices(self, region: Region, chunk_count: int) -> Tensor:
        """View [chunks, layers, 2, kv_heads, tokens, head_dim] of a region; slices are aligned."""
        layout = self.layout
        chunks = (chunk_count, layout.layer_count)
        strides = (*chunks, layout.layer_stride)
        used = region.tensor(torch.uint8, strides)[..., : layout.slice_bytes(0)].view(self.dtype)
        return used.view(*chunks, 2, self.kv_head_count, layout.chunk_tokens, self.head_dim)
