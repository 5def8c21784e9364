"""Where a chunk lies (its extent), and where its slices lie in there."""

from dataclasses import dataclass
from itertools import accumulate
from operator import le

from kvstored_contract.layout import StateLayout, align_up


@dataclass(frozen=True, slots=True)
class Extent:
    """A stretch of one device that belongs to one chunk."""

    device_index: int
    offset: int
    byte_count: int

    @property
    def end(self) -> int:
        """First byte behind the extent."""
        return self.offset + self.byte_count


HEADER_BYTES = 4096
CLASS_STEPS = 8
"""Size classes of an encoded layout: an extent has at most one step too many."""


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
        layers = range(layout.layer_count)
        sizes = tuple([layout.slice_bytes(layer, token_count) for layer in layers])
        return cls.of_slices(sizes)

    @classmethod
    def of_slices(cls, slice_bytes: tuple[int, ...]) -> "ChunkGeometry":
        """Geometry from the lengths of the slices themselves."""
        offsets = [*accumulate(map(align_up, slice_bytes), initial=HEADER_BYTES)]
        return cls(slice_bytes, tuple(offsets))

    @property
    def layer_count(self) -> int:
        """Number of layers, empty slices included."""
        return len(self.slice_bytes)

    @property
    def extent_bytes(self) -> int:
        """Aligned bytes of the header and of all slices."""
        return self.slice_offsets[-1]

    def starts_in_run(self, first_layer: int, layer_count: int) -> tuple[int, ...]:
        """Offset of each slice of a run from the first of them."""
        first = self.slice_offsets[first_layer]
        ends = self.slice_offsets[first_layer : first_layer + layer_count]
        return tuple([offset - first for offset in ends])


def class_bytes(layout: StateLayout) -> int:
    """The largest extent of a layout: that of a complete chunk.

    Without a codec all chunks of the layout have this size class, short ones too.
    """
    return ChunkGeometry.of(layout, layout.chunk_tokens).extent_bytes


def class_bytes_for(layout: StateLayout, geometry: ChunkGeometry) -> int:
    """Size class of one chunk of a layout, which has a codec: the next of CLASS_STEPS steps.

    Few classes, so that what one chunk frees fits the next: slabs of one class each are
    neither stranded nor taken over more often than those of so many layouts.
    """
    largest = class_bytes(layout)
    step = align_up(-(-largest // CLASS_STEPS))
    return min(-(-geometry.extent_bytes // step) * step, largest)


@dataclass(frozen=True, slots=True)
class LengthBounds:
    """How long the slices of a chunk of a layout, which has a codec, may be: for each layer."""

    least: tuple[int, ...]
    most: tuple[int, ...]

    @classmethod
    def of(cls, layout: StateLayout) -> "LengthBounds":
        """From one byte, where anything is stored of a layer, to a complete slice."""
        most = tuple([layout.slice_bytes(layer) for layer in range(layout.layer_count)])
        return cls(tuple([min(length, 1) for length in most]), most)

    def problem(self, lengths: tuple[int, ...]) -> str | None:
        """Why a chunk cannot have slices of these lengths; None when it can."""
        if len(lengths) != len(self.most):
            return f"it has {len(lengths)} lengths of slices for {len(self.most)} layers"
        if all(map(le, self.least, lengths)) and all(map(le, lengths, self.most)):
            return None
        return next(
            f"layer {layer} has {length} bytes; this layout allows {least} to {most}"
            for layer, (least, length, most) in enumerate(
                zip(self.least, lengths, self.most, strict=True)
            )
            if not least <= length <= most
        )
