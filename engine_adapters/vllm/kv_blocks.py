"""The engine's KV cache as blocks of bytes."""

from collections.abc import Mapping, Sequence

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

    def scatter(self, layer: int, block_ids: Tensor, source: Tensor) -> None:
        """Copies bytes [block_count * block_bytes] into blocks."""
        target = self._layers[layer]
        target.index_copy_(0, block_ids, source.view(target.dtype).view(-1, target.shape[1]))


def _as_items(name: str, cache: Tensor) -> Tensor:
    """The cache as [block_count, items_of_a_block]."""
    if cache.device.type != "cpu":
        raise BlockShapeError(f"the cache of {name} is on {cache.device}, not in host memory")
    if not cache.is_contiguous():
        raise BlockShapeError(f"the blocks of {name} are no contiguous bytes")
    blocks = cache.view(cache.shape[0], -1).view(torch.uint8)
    return blocks.view(torch.int64) if blocks.shape[1] % ITEM_BYTES == 0 else blocks
