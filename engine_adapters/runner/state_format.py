"""How the runner's states lie in the chunks of the store."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from engine_adapters.runner.fingerprint import model_fingerprint
from engine_adapters.runner.model import Model
from kvstored_client import LayerState, Placement, Region, Rotary, StateKind, StateLayout

CHUNK_TOKENS = 64
"""Tokens of a chunk unless the caller chooses otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFormat:
    """The layout that the store knows, and the shape behind its bytes.

    A slice is [2, tokens, kv_heads, head_dim]: all unrotated keys, then all values.
    """

    layout: StateLayout
    kv_head_count: int
    head_dim: int
    dtype: torch.dtype

    @classmethod
    def of_model(
        cls, model: Model, fingerprint: str, *, chunk_tokens: int = CHUNK_TOKENS
    ) -> "StateFormat":
        """Format of ``model``'s states under ``fingerprint``."""
        config = model.config
        token_bytes = 2 * config.kv_head_count * config.head_dim * model.dtype.itemsize
        return cls(
            layout=StateLayout(
                model=fingerprint,
                dtype=str(model.dtype).removeprefix("torch."),
                layers=(LayerState(StateKind.KV, token_bytes),) * config.layer_count,
                chunk_tokens=chunk_tokens,
                rotary=Rotary.UNROTATED,
            ),
            kv_head_count=config.kv_head_count,
            head_dim=config.head_dim,
            dtype=model.dtype,
        )

    @classmethod
    def of_directory(
        cls, model: Model, directory: Path, *, chunk_tokens: int = CHUNK_TOKENS
    ) -> "StateFormat":
        """Format of the model that was loaded from ``directory``; reads its weights once."""
        identity = model_fingerprint(directory, model.config)
        return cls.of_model(model, identity, chunk_tokens=chunk_tokens)

    def region_bytes(self, chunk_count: int) -> int:
        """Bytes of a region for ``chunk_count`` chunks."""
        return Placement.contiguous_bytes(self.layout, chunk_count)

    def view(self, region: Region, chunk_count: int) -> Tensor:
        """The chunks at the start of ``region`` as one tensor that aliases the arena.

        Shape [chunks, layers, 2, tokens, kv_heads, head_dim] on the CPU.
        """
        layout = self.layout
        stride = layout.layer_stride // self.dtype.itemsize
        shape = (2, layout.chunk_tokens, self.kv_head_count, self.head_dim)
        padded = region.tensor(self.dtype, (chunk_count, layout.layer_count, stride))
        used = layout.slice_bytes(0) // self.dtype.itemsize
        return padded[:, :, :used].view(chunk_count, layout.layer_count, *shape)
