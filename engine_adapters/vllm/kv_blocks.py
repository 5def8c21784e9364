"""The engine's KV cache as blocks of bytes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


class BlockShapeError(ValueError):
    """A KV cache whose blocks are no contiguous bytes; the message names the layer."""


class KvBlocks:
    """One view of bytes for each layer, of shape [block_count, block_bytes]; aliases the cache.

    Blocks are opaque: how keys and values lie in one depends on the attention backend.
    """

    def __init__(self, caches: Mapping[str, Tensor], layer_names: Sequence[str]) -> None:
        self.layers = tuple(_as_bytes(name, caches[name]) for name in layer_names)

    @property
    def block_bytes(self) -> tuple[int, ...]:
        """Bytes of one block, for each layer."""
        return tuple(int(layer.shape[1]) for layer in self.layers)

    def gather(self, layer: int, block_ids: Tensor, slices: Tensor) -> None:
        """Copies blocks one after the other into slices [chunk_count, slice_bytes]."""
        source, block_bytes = self.layers[layer], self.layers[layer].shape[1]
        if slices.is_contiguous():
            torch.index_select(source, 0, block_ids, out=slices.view(-1, block_bytes))
        else:
            slices.copy_(source[block_ids].view(slices.shape))

    def scatter(self, layer: int, block_ids: Tensor, source: Tensor) -> None:
        """Copies bytes [block_count * block_bytes] into blocks."""
        target = self.layers[layer]
        target.index_copy_(0, block_ids, source.view(-1, target.shape[1]))


def _as_bytes(name: str, cache: Tensor) -> Tensor:
    if cache.device.type != "cpu":
        raise BlockShapeError(f"the cache of {name} is on {cache.device}, not in host memory")
    if not cache.is_contiguous():
        raise BlockShapeError(f"the blocks of {name} are no contiguous bytes")
    return cache.view(cache.shape[0], -1).view(torch.uint8)
