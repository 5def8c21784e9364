"""Whether a model's layer inputs give the keys and values that the model has made itself."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.block_span import BlockCopy
from kvstored_client import StateKind, StateLayout

DISTANCE_MAX = 0.1
"""Sums of 16 bits in another order are within a hundredth; inputs of something else are not."""


class ProjectionError(ValueError):
    """Projected keys and values are others than those that were computed; says of which layer."""


class ProjectionCheck:
    """Restores a chunk that was just computed into its own blocks. The engine's thread only.

    Layers that look like Llama's may still call their modules in another order, or with another
    residual: of these nothing may be stored.
    """

    def __init__(self, blocks: KvBlocks, filler: BlockFiller, layout: StateLayout) -> None:
        self._blocks = blocks
        self._filler = filler
        self._layout = layout
        self._hidden = [
            layer for layer, state in enumerate(layout.layers) if state.kind is StateKind.HIDDEN
        ]

    def compare(
        self, slices_of: Callable[[int], Tensor], chunk: int, block_ids: tuple[int, ...]
    ) -> None:
        """Chunk number ``chunk`` of a request lies in its blocks and, layer by layer, in slices.

        ``slices_of`` gives the bytes of a layer: [chunks, slice_bytes], the chunk's first.
        Raises ProjectionError, or whatever the model's modules raise; the blocks have what they
        had in each case.
        """
        computed = [
            self._blocks.take(layer, block_ids) for layer in range(self._layout.layer_count)
        ]
        copy = BlockCopy(chunk, 0, len(block_ids), block_ids)
        try:
            filled = self._filler.fill(slices_of, chunk, [copy], after=self._filler.mark())
            filled.wait()
            projected = {layer: self._blocks.take(layer, block_ids) for layer in self._hidden}
        finally:
            for layer, blocks in enumerate(computed):
                self._blocks.put(layer, block_ids, blocks)
        for layer in self._hidden:
            if _distance(computed[layer], projected[layer]) > DISTANCE_MAX:
                raise ProjectionError(
                    f"what is projected from the inputs of layer {layer} is not what the model "
                    "computes"
                )


def _distance(computed: Tensor, projected: Tensor) -> float:
    """How far apart blocks are: of their length, or of their bytes where those are no numbers."""
    if not computed.dtype.is_floating_point:
        return float((computed != projected).float().mean())
    before, after = (torch.nan_to_num(blocks.float()) for blocks in (computed, projected))
    return float((after - before).norm() / before.norm().clamp_min(1e-30))
