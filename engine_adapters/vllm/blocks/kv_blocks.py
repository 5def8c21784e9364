"""The engine's KV cache as blocks of bytes."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.device_copies.landing import Landing
from engine_adapters.vllm.blocks.block_layout import BlockShapeError, block_layout

ITEM_BYTES = 8


class KvBlocks:
    """The blocks of each layer; aliases the cache.

    Blocks are opaque: how keys and values lie in one depends on the attention backend. They are
    moved as the widest items that they are whole numbers of, which takes a fraction of the time
    that single bytes take. What is stored of a block are its bytes in the order of memory.
    ``block_count``: the engine's blocks; by default as many as the caches have.
    """

    def __init__(
        self,
        caches: Mapping[str, Tensor],
        layer_names: Sequence[str],
        *,
        copies: DeviceCopies | None = None,
        block_count: int | None = None,
    ) -> None:
        self.copies = HostCopies() if copies is None else copies
        self._dtypes = tuple(caches[name].dtype for name in layer_names)
        self._layers = tuple(_as_items(name, caches[name], block_count) for name in layer_names)

    @property
    def is_on_host(self) -> bool:
        """Whether a copy is over when it returns."""
        return isinstance(self.copies, HostCopies)

    @property
    def device(self) -> torch.device:
        """Where the blocks lie."""
        return self._layers[0].device

    def block_bytes(self, layer: int) -> int:
        """Of one block of a layer."""
        items = self._layers[layer]
        return items[0].numel() * items.dtype.itemsize

    def take(self, layer: int, block_ids: Sequence[int]) -> Tensor:
        """Copies of blocks on the device, in the dtype of the cache."""
        return self._layers[layer][list(block_ids)].view(self._dtypes[layer])

    def put(self, layer: int, block_ids: Sequence[int], blocks: Tensor) -> None:
        """Gives blocks what ``take`` has taken of them."""
        items = self._layers[layer]
        items[list(block_ids)] = blocks.view(items.dtype)

    def gather(self, layer: int, block_ids: Sequence[int], slices: Tensor) -> Landing:
        """Copies blocks one after the other into slices [chunk_count, slice_bytes]."""
        return self.copies.gather(self._layers[layer], block_ids, slices)

    def scatter(
        self, layer: int, block_ids: Sequence[int], parts: Sequence[Tensor], *, after: Landing
    ) -> Landing:
        """Copies ``parts`` [part_bytes], whole blocks together, into blocks."""
        return self.copies.scatter(parts, self._layers[layer], block_ids, after=after)


def _as_items(name: str, cache: Tensor, block_count: int | None) -> Tensor:
    """The cache as [block_count, *runs, items_of_a_run]."""
    if cache.device.type not in ("cpu", "cuda"):
        raise BlockShapeError(f"the cache of {name} is on {cache.device}")
    item_bytes = cache.dtype.itemsize
    layout = block_layout(
        cache.shape,
        cache.stride(),
        item_bytes=item_bytes,
        block_count=cache.shape[0] if block_count is None else block_count,
        name=name,
    )
    offset_bytes = cache.storage_offset() * item_bytes
    is_wide = layout.is_in(ITEM_BYTES) and offset_bytes % ITEM_BYTES == 0
    dtype = torch.int64 if is_wide else torch.uint8
    items = layout.in_items(dtype.itemsize)
    empty = torch.empty(0, dtype=dtype, device=cache.device)
    return empty.set_(
        cache.untyped_storage(), offset_bytes // dtype.itemsize, items.sizes, items.strides
    )
