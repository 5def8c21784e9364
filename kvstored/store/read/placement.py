"""Where the slices of a request lie in the client's arena. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kvstored.store.read.fragments import Fragments
from kvstored_contract.limits import ALIGNMENT_BYTES, FRAGMENT_BYTES_MIN


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
    block_offsets: Sequence[int] = ()

    def fragments(
        self, *, chunk: int, first_layer: int, slice_bytes: Sequence[int], chunk_count: int
    ) -> tuple[Fragments, ...]:
        """The fragments of each slice of neighbouring layers of one chunk.

        ``slice_bytes`` has one entry for each of these layers.
        """
        start = self.base + first_layer * self.layer_stride
        found: list[Fragments] = []
        if not self.block_offsets:
            start += chunk * self.chunk_stride
            for size in slice_bytes:
                found.append(((start, size),) if size else ())
                start += self.layer_stride
            return tuple(found)
        count = self.fragments_per_slice(chunk_count)
        blocks = self.block_offsets[chunk * count : (chunk + 1) * count]
        for size in slice_bytes:
            fragment_bytes = size // count
            found.append(
                tuple([(start + block, fragment_bytes) for block in blocks]) if size else ()
            )
            start += self.layer_stride
        return tuple(found)

    def fragments_per_slice(self, chunk_count: int) -> int:
        """Into how many equal fragments each slice of a request of so many chunks is cut."""
        return len(self.block_offsets) // chunk_count or 1

    def is_aligned(self, *, chunk_count: int, layer_count: int) -> bool:
        """Whether every slice of a request begins, in all of its fragments, on a page."""
        offsets = [self.base]
        if layer_count > 1:
            offsets.append(self.layer_stride)
        if chunk_count > 1 and not self.block_offsets:
            offsets.append(self.chunk_stride)
        if any(offset % ALIGNMENT_BYTES for offset in offsets):
            return False
        return not (np.asarray(self.block_offsets, np.uint64) % ALIGNMENT_BYTES).any()

    def check(self, *, arena_bytes: int, chunk_count: int, slice_bytes: Sequence[int]) -> None:
        """Raises PlacementError unless every slice lies inside the arena.

        ``slice_bytes`` has one entry per layer of the request.
        """
        if self.block_offsets and len(self.block_offsets) % chunk_count:
            raise PlacementError(
                f"{len(self.block_offsets)} block offsets cannot be shared out evenly "
                f"to {chunk_count} chunks"
            )
        fragments = self.fragments_per_slice(chunk_count)
        if any(size % fragments for size in slice_bytes):
            raise PlacementError(f"a slice cannot be cut into {fragments} equal fragments")
        if (
            fragments > 1
            and min(filter(None, slice_bytes), default=0) < fragments * FRAGMENT_BYTES_MIN
        ):
            raise PlacementError(
                f"{fragments} fragments of a slice have less than {FRAGMENT_BYTES_MIN} bytes each"
            )
        ends = [
            self.base + layer * self.layer_stride + size // fragments
            for layer, size in enumerate(slice_bytes)
        ]
        farthest = (chunk_count - 1) * self.chunk_stride
        if self.block_offsets:
            farthest = int(np.asarray(self.block_offsets, np.uint64).max())
        if max(ends) + farthest > arena_bytes:
            raise PlacementError(
                f"the placement ends at byte {max(ends) + farthest} of an arena of "
                f"{arena_bytes} bytes"
            )
