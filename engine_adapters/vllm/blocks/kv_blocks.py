"""The engine's KV cache as blocks of bytes."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

ITEM_BYTES = 8


class BlockShapeError(ValueError):
    """A KV cache whose blocks are no contiguous bytes; the message names the layer."""


class KvBlocks:
    """The blocks of each layer; aliases the cache.

    Blocks are opaque: how keys and values lie in one depends on the attention backend. They are
    moved as the widest items that they are whole numbers of, which takes a fraction of the time
    that single bytes take.
    """

    def __init__(self, caches: Mapping[str, Tensor], layer_names: Sequence[str]) -> None:
        self._caches = tuple(caches[name] for name in layer_names)
        self._layers = tuple(_as_items(name, caches[name]) for name in layer_names)
        self._arrays = tuple(layer.numpy() for layer in self._layers)

    def take(self, layer: int, block_ids: Tensor) -> Tensor:
        """Copies of blocks, in the shape and dtype of the cache."""
        return self._caches[layer][block_ids]

    def put(self, layer: int, block_ids: Tensor, blocks: Tensor) -> None:
        """Gives blocks what ``take`` has taken of them."""
        self._caches[layer][block_ids] = blocks

    def gather(self, layer: int, block_ids: Tensor, slices: Tensor) -> None:
        """Copies blocks one after the other into slices [chunk_count, slice_bytes]."""
        source = self._layers[layer]
        target = slices.view(source.dtype)
        if target.is_contiguous():
            torch.index_select(source, 0, block_ids, out=target.view(-1, source.shape[1]))
        else:
            target.copy_(source[block_ids].view(target.shape))

    def scatter(self, layer: int, block_ids: Sequence[int], source: Tensor) -> None:
        """Copies bytes [block_count * block_bytes] into blocks, by the calling thread alone.

        A copy of torch's would be shared among threads on the cores that the engine computes on,
        and OpenMP would bind the caller to one of them.
        """
        target = self._arrays[layer]
        blocks = source.numpy().view(target.dtype).reshape(-1, target.shape[1])
        for block_id, block in zip(block_ids, blocks, strict=True):
            np.copyto(target[block_id], block)


def _as_items(name: str, cache: Tensor) -> Tensor:
    """The cache as [block_count, items_of_a_block]."""
    if cache.device.type != "cpu":
        raise BlockShapeError(f"the cache of {name} is on {cache.device}, not in host memory")
    if not cache.is_contiguous():
        raise BlockShapeError(f"the blocks of {name} are no contiguous bytes")
    blocks = cache.view(cache.shape[0], -1).view(torch.uint8)
    return blocks.view(torch.int64) if blocks.shape[1] % ITEM_BYTES == 0 else blocks
