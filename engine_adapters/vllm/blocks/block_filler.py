"""Brings what was loaded into the engine's blocks."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from engine_adapters.device_copies.landing import Landing, all_of
from engine_adapters.vllm.blocks.block_rows import GatheredRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.block_span import BlockCopy
from kvstored_client import StateKind, StateLayout

PROJECTED_CHUNKS_MAX = 8
"""Chunks that are projected at once: between two steps, so others wait for it."""
COPIED_CHUNKS_MAX = 32
"""Chunks that are copied to a device at once: each copy takes some time to launch."""


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
        rows: GatheredRows | None = None,
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

    @property
    def chunks_at_once(self) -> int:
        """Chunks that one call fills at most."""
        if self.needs_engine:
            return PROJECTED_CHUNKS_MAX
        return 1 if self._blocks.is_on_host else COPIED_CHUNKS_MAX

    def row_count(self, copies: Sequence[BlockCopy]) -> int:
        """How many tokens some chunks have."""
        return sum(copy.block_count for copy in copies) * self._block_tokens

    def mark(self) -> Landing:
        """On the engine's thread: what it may still do with blocks that are to be filled."""
        return self._blocks.copies.mark()

    def fill(
        self,
        slices_of: Callable[[int], Tensor],
        first_chunk: int,
        copies: Sequence[BlockCopy],
        *,
        after: Landing,
        join: Callable[[Tensor], Tensor] | None = None,
    ) -> Landing:
        """Fills blocks of some chunks when ``after`` is over.

        ``slices_of`` gives the bytes of a layer: [chunks, slice_bytes], from ``first_chunk`` on.
        They are needed until the landing is over; where this raises they no longer are. ``join``
        makes whole layer inputs [row_count, hidden_size] where slices have some columns of them.
        """
        copies = sorted(copies, key=lambda copy: copy.chunk)
        block_ids = [block for copy in copies for block in copy.block_ids]
        if self._rows is not None:
            self._rows.forget(block_ids)
        landings: list[Landing] = []
        try:
            for layer, state in enumerate(self._layout.layers):
                parts = self._parts(slices_of(layer), first_chunk, copies)
                if state.kind is StateKind.HIDDEN:
                    source = parts[0] if len(parts) == 1 else torch.cat(parts)
                    landings.append(self._project(layer, source, copies, join))
                else:
                    landings.append(self._blocks.scatter(layer, block_ids, parts, after=after))
        except BaseException:
            all_of(landings).wait()
            raise
        return all_of(landings)

    def _parts(self, slices: Tensor, first_chunk: int, copies: Sequence[BlockCopy]) -> list[Tensor]:
        """The bytes of all blocks in their order, in as few parts as gaps between them allow."""
        count, slice_bytes = slices.shape
        stride, unit = slices.stride(0), slice_bytes * self._block_tokens
        unit //= self._layout.chunk_tokens
        flat = slices.as_strided(((count - 1) * stride + slice_bytes,), (1,))
        runs: list[tuple[int, int]] = []
        for copy in copies:
            slice_first = (copy.chunk - first_chunk) * stride
            first, stop = (
                slice_first + block * unit for block in (copy.first_block, copy.stop_block)
            )
            if runs and runs[-1][1] == first:
                first = runs.pop()[0]
            runs.append((first, stop))
        return [flat[first:stop] for first, stop in runs]

    def _positions(self, copy: BlockCopy) -> Tensor:
        """Of all tokens of the blocks."""
        first = copy.first_token
        if first is None:
            first = copy.chunk * self._layout.chunk_tokens + copy.first_block * self._block_tokens
        return torch.arange(first, first + copy.block_count * self._block_tokens)

    def _slots(self, copy: BlockCopy) -> Tensor:
        """Where these tokens lie in the cache."""
        first = (copy.first_token or 0) % self._block_tokens
        places = torch.arange(first, first + copy.block_count * self._block_tokens)
        blocks = torch.tensor(copy.block_ids)[places // self._block_tokens]
        return blocks * self._block_tokens + places % self._block_tokens

    def _project(
        self,
        layer: int,
        source: Tensor,
        copies: Sequence[BlockCopy],
        join: Callable[[Tensor], Tensor] | None,
    ) -> Landing:
        assert self._projection is not None, "layouts with hidden states have a projection"
        positions = torch.cat([self._positions(copy) for copy in copies])
        slots = torch.cat([self._slots(copy) for copy in copies])
        inputs = source.view(self._dtype).view(len(slots), -1)
        with self._blocks.copies.brought(inputs) as brought:
            whole = brought.tensor if join is None else join(brought.tensor)
            device = whole.device
            self._projection.project(layer, whole, positions.to(device), slots.to(device))
        return brought.landing
