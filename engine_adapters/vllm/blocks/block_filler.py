"""Brings what was loaded into the engine's blocks."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.block_span import BlockCopy
from kvstored_client import StateKind, StateLayout


class Projection(Protocol):
    """Makes keys and values from layer inputs and writes them into the cache."""

    def project(self, layer: int, inputs: Tensor, positions: Tensor, slots: Tensor) -> None:
        """See ``HiddenLayers.project``."""


class BlockFiller:
    """Fills blocks layer by layer: KV slices are copied, HIDDEN slices projected.

    With a ``projection`` it belongs to the engine's thread, because it uses the model. What was
    gathered in ``rows`` for a block that is filled was another request's, and is forgotten.
    """

    def __init__(
        self,
        blocks: KvBlocks,
        layout: StateLayout,
        *,
        block_tokens: int,
        dtype: torch.dtype,
        projection: Projection | None = None,
        rows: BlockRows | None = None,
    ) -> None:
        self._blocks = blocks
        self._layout = layout
        self._block_tokens = block_tokens
        self._dtype = dtype
        self._projection = projection
        self._rows = rows

    @property
    def needs_engine(self) -> bool:
        """Whether only the engine's thread may fill."""
        return self._projection is not None

    def fill(
        self,
        slices_of: Callable[[int], Tensor],
        first_chunk: int,
        copies: Sequence[BlockCopy],
    ) -> None:
        """Fills blocks of some chunks.

        ``slices_of`` gives the bytes of a layer: [chunks, slice_bytes], from ``first_chunk`` on.
        """
        block_ids = [block for copy in copies for block in copy.block_ids]
        if self._rows is not None:
            self._rows.forget(block_ids)
        ids = torch.tensor(block_ids)
        for layer, state in enumerate(self._layout.layers):
            slices = slices_of(layer)
            unit = slices.shape[1] // (self._layout.chunk_tokens // self._block_tokens)
            parts = [
                slices[copy.chunk - first_chunk, copy.first_block * unit : copy.stop_block * unit]
                for copy in copies
            ]
            if state.kind is StateKind.HIDDEN:
                source = parts[0] if len(parts) == 1 else torch.cat(parts)
                self._project(layer, source, ids, copies)
                continue
            for copy, part in zip(copies, parts, strict=True):
                self._blocks.scatter(layer, copy.block_ids, part)

    def _project(
        self, layer: int, source: Tensor, ids: Tensor, copies: Sequence[BlockCopy]
    ) -> None:
        assert self._projection is not None, "layouts with hidden states have a projection"
        tokens = torch.arange(self._block_tokens)
        slots = (ids[:, None] * self._block_tokens + tokens).flatten()
        positions = torch.cat(
            [
                torch.arange(
                    copy.chunk * self._layout.chunk_tokens + copy.first_block * self._block_tokens,
                    copy.chunk * self._layout.chunk_tokens + copy.stop_block * self._block_tokens,
                )
                for copy in copies
            ]
        )
        inputs = source.view(self._dtype).view(len(slots), -1)
        self._projection.project(layer, inputs, positions, slots)
