"""Where the slices of a request lie in the client's arena. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kvstored_contract.limits import ALIGNMENT_BYTES, FRAGMENT_BYTES_MIN


class PlacementError(ValueError):
    """A placement that does not fit; the message names the number at fault."""


class Fragments(NamedTuple):
    """Where one slice lies in the arena: as a whole at ``start``, or cut into equal fragments.

    With ``blocks``, which are int64, fragment p lies at ``start + blocks[p]``.
    """

    start: int
    byte_count: int
    blocks: npt.NDArray[np.int64] | None = None

    @property
    def fragment_count(self) -> int:
        """How many fragments there are."""
        return 1 if self.blocks is None else len(self.blocks)

    @property
    def width_bytes(self) -> int:
        """The length of each fragment."""
        return self.byte_count // self.fragment_count

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The arena offset of each fragment of a slice that is cut, in order."""
        assert self.blocks is not None
        return self.blocks + self.start

    def pairs(self) -> list[tuple[int, int]]:
        """(arena offset, bytes) of each fragment, in order; none for a slice without bytes."""
        if not self.byte_count:
            return []
        if self.blocks is None:
            return [(self.start, self.byte_count)]
        width_bytes = self.width_bytes
        return [(start, width_bytes) for start in self.starts.tolist()]


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
        """Where each slice of neighbouring layers of one chunk lies.

        ``slice_bytes`` has one entry for each of these layers.
        """
        start = self.base + first_layer * self.layer_stride
        blocks = self._blocks(chunk, self.fragments_per_slice(chunk_count))
        if blocks is None:
            start += chunk * self.chunk_stride
        elif len(blocks) == 1:
            start, blocks = start + int(blocks[0]), None
        return tuple(
            Fragments(start + layer * self.layer_stride, size, blocks if size else None)
            for layer, size in enumerate(slice_bytes)
        )

    def _blocks(self, chunk: int, count: int) -> npt.NDArray[np.int64] | None:
        """The block offsets of a chunk, which has ``count``; None where there are only strides."""
        if not self.block_offsets:
            return None
        blocks = np.asarray(self.block_offsets[chunk * count : (chunk + 1) * count], np.uint64)
        # ``check`` has seen that they lie inside an arena.
        return blocks.astype(np.int64)

    def fragments_per_slice(self, chunk_count: int) -> int:
        """Into how many equal fragments each slice of a request of so many chunks is cut."""
        return len(self.block_offsets) // chunk_count or 1

    def is_slice_aligned(self, *, layer: int, byte_count: int, chunk_count: int) -> bool:
        """Whether a layer's slice is made of whole pages, in all fragments of every chunk."""
        fragment_bytes = byte_count // self.fragments_per_slice(chunk_count)
        offsets: npt.ArrayLike = self.block_offsets
        if not self.block_offsets:
            offsets = np.arange(chunk_count, dtype=np.uint64) * np.uint64(self.chunk_stride)
        starts = np.asarray(offsets, np.uint64) + np.uint64(self.base + layer * self.layer_stride)
        return not (fragment_bytes % ALIGNMENT_BYTES or (starts % ALIGNMENT_BYTES).any())

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
