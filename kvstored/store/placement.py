"""Where the slices of a request lie in the client's arena."""

from collections.abc import Sequence
from dataclasses import dataclass


class PlacementError(ValueError):
    """A placement that does not fit; the message names the number at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Base plus strides, or a list of engine block offsets (see ``common.proto``).

    Layers count from the request's first layer, chunks from its first chunk.
    """

    base: int
    layer_stride: int
    chunk_stride: int = 0
    block_offsets: tuple[int, ...] = ()

    def pieces(
        self, *, chunk: int, layer: int, slice_bytes: int, chunk_count: int
    ) -> tuple[tuple[int, int], ...]:
        """(arena offset, bytes) of the pieces of one slice, in their order in the slice."""
        if slice_bytes == 0:
            return ()
        start = self.base + layer * self.layer_stride
        if not self.block_offsets:
            return ((start + chunk * self.chunk_stride, slice_bytes),)
        count = len(self.block_offsets) // chunk_count
        piece_bytes = slice_bytes // count
        first = chunk * count
        return tuple(
            (start + block, piece_bytes) for block in self.block_offsets[first : first + count]
        )

    def check(self, *, arena_bytes: int, chunk_count: int, slice_bytes: Sequence[int]) -> None:
        """Raises PlacementError unless every slice lies inside the arena.

        ``slice_bytes`` has one entry per layer of the request.
        """
        if self.block_offsets and len(self.block_offsets) % chunk_count:
            raise PlacementError(
                f"{len(self.block_offsets)} block offsets cannot be shared out evenly "
                f"to {chunk_count} chunks"
            )
        pieces = max(len(self.block_offsets) // chunk_count, 1)
        if any(size % pieces for size in slice_bytes):
            raise PlacementError(f"a slice cannot be cut into {pieces} equal pieces")
        ends = [
            self.base + layer * self.layer_stride + size // pieces
            for layer, size in enumerate(slice_bytes)
        ]
        farthest = max(self.block_offsets, default=(chunk_count - 1) * self.chunk_stride)
        if max(ends) + farthest > arena_bytes:
            raise PlacementError(
                f"the placement ends at byte {max(ends) + farthest} of an arena of "
                f"{arena_bytes} bytes"
            )
