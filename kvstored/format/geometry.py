"""Where the slices of a chunk lie inside its extent."""

from dataclasses import dataclass
from itertools import accumulate

from kvstored_contract.layout import StateLayout, align_up

HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ChunkGeometry:
    """Offsets within an extent: one header page, then the slices in layer order.

    Every slice starts at a 4 KiB boundary, so that a run of layers is one
    contiguous, aligned read. ``slice_offsets`` has one entry more than there are
    layers: the last is ``extent_bytes``.
    """

    slice_bytes: tuple[int, ...]
    slice_offsets: tuple[int, ...]

    @classmethod
    def of(cls, layout: StateLayout, token_count: int) -> "ChunkGeometry":
        """Geometry of a chunk with ``token_count`` tokens."""
        sizes = tuple(layout.slice_bytes(layer, token_count) for layer in range(layout.layer_count))
        return cls.of_slices(sizes)

    @classmethod
    def of_slices(cls, slice_bytes: tuple[int, ...]) -> "ChunkGeometry":
        """Geometry from the slice lengths that an extent header records."""
        return cls(slice_bytes, tuple(accumulate(map(align_up, slice_bytes), initial=HEADER_BYTES)))

    @property
    def layer_count(self) -> int:
        """Number of layers, empty slices included."""
        return len(self.slice_bytes)

    @property
    def extent_bytes(self) -> int:
        """Aligned bytes of the header and of all slices."""
        return self.slice_offsets[-1]

    def starts_in_run(self, first_layer: int, layer_count: int) -> tuple[int, ...]:
        """Offset of each slice of a run of layers from the first of them."""
        first = self.slice_offsets[first_layer]
        ends = self.slice_offsets[first_layer : first_layer + layer_count]
        return tuple(offset - first for offset in ends)


def class_bytes(layout: StateLayout) -> int:
    """Size class of a layout: the extent of a complete chunk. Short chunks use it too."""
    return ChunkGeometry.of(layout, layout.chunk_tokens).extent_bytes
