"""Slices as bytes, for those who do not look into them."""

from dataclasses import dataclass

import torch

from kvstored_client import StateLayout


@dataclass(frozen=True, slots=True)
class ByteFormat:
    """A ``SliceFormat`` of slices [slice_bytes] of uint8, as they are stored."""

    layout: StateLayout
    dtype = torch.uint8
    codec = None

    def slice_shape(self, layer: int, token_count: int | None = None) -> tuple[int, ...]:
        """One slice."""
        return (self.layout.slice_bytes(layer, token_count),)

    def held_bytes(self, chunk_count: int) -> int:
        """Of the arena: slices take whole pages, all as many as the largest."""
        return chunk_count * self.layout.layer_count * self.layout.layer_stride
