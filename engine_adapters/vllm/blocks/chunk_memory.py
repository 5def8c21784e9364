"""A region of the arena that holds chunks of blocks, layer after layer."""

import torch
from torch import Tensor

from kvstored_client import Placement, Region, StateLayout


class ChunkMemory:
    """``chunk_count`` chunks in one region: all of a layer together, so that it is one copy.

    A slice is the blocks of its chunk, one after the other.
    """

    __slots__ = ("_layout", "_stride", "chunk_count", "region")

    def __init__(self, region: Region, layout: StateLayout, chunk_count: int) -> None:
        self.region = region
        self.chunk_count = chunk_count
        self._layout = layout
        self._stride = layout.layer_stride

    @staticmethod
    def byte_count(layout: StateLayout, chunk_count: int) -> int:
        """Bytes of a region for so many chunks."""
        return layout.layer_count * chunk_count * layout.layer_stride

    @property
    def placement(self) -> Placement:
        """Where the slices lie."""
        return Placement(
            regions=(self.region,),
            base=self.region.offset,
            layer_stride=self.chunk_count * self._stride,
            chunk_stride=self._stride,
        )

    def slices(self, layer: int) -> Tensor:
        """Bytes of a layer's slices, of shape [chunk_count, slice_bytes]; alias the arena."""
        offset = layer * self.chunk_count * self._stride
        padded = self.region.tensor(torch.uint8, (self.chunk_count, self._stride), offset)
        return padded[:, : self._layout.slice_bytes(layer)]
