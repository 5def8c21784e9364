"""Sections: which neighbouring layers of a layout one read brings. Pure.

A placement has one stride for all layers of a call. A section is therefore a stretch of
stored layers of one kind, so that nothing of the arena is left over between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kvstored_contract.layout import StateKind, StateLayout, align_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Layers ``first_layer`` to ``stop_layer`` - 1 and the place of their slices in a region.

    Slices of one layer lie together, chunk after chunk: layer l of chunk c is at
    ``((l - first_layer) * chunk_count + c) * slice_stride``.
    """

    first_layer: int
    layer_count: int
    slice_stride: int
    """Bytes from one slice to the next."""

    @property
    def stop_layer(self) -> int:
        """The layer behind the last one."""
        return self.first_layer + self.layer_count

    def region_bytes(self, chunk_count: int) -> int:
        """Arena bytes of ``chunk_count`` chunks."""
        return self.layer_count * chunk_count * self.slice_stride


def whole_section(layout: StateLayout) -> Section:
    """All layers of a layout in one read: each slice takes as much as the largest."""
    return Section(first_layer=0, layer_count=layout.layer_count, slice_stride=layout.layer_stride)


def first_stored_layer(layout: StateLayout) -> int:
    """The first layer that is not computed again.

    Raises ValueError for a layout in which one behind it is: its input would be missing.
    """
    stored = [state.kind is not StateKind.NONE for state in layout.layers]
    first = stored.index(True)
    if not all(stored[first:]):
        missing = stored.index(False, first)
        raise ValueError(
            f"layer {missing} stores nothing but layer {first} before it does; only the first "
            "layers can be computed again"
        )
    return first


def sections_of_layers(sections: Sequence[Section], layers: range) -> tuple[Section, ...]:
    """The parts of ``sections`` that lie in ``layers``."""
    parts = (
        (section, max(layers.start, section.first_layer), min(layers.stop, section.stop_layer))
        for section in sections
    )
    return tuple(
        replace(section, first_layer=first, layer_count=stop - first)
        for section, first, stop in parts
        if first < stop
    )


def sections_from(sections: Sequence[Section], first_layer: int) -> tuple[Section, ...]:
    """The parts of ``sections`` from a layer on; at least their last layer."""
    stop = sections[-1].stop_layer
    return sections_of_layers(sections, range(min(first_layer, stop - 1), stop))


def bands_of(
    sections: Sequence[Section], *, chunk_count: int, byte_count: int
) -> tuple[tuple[range, ...], int]:
    """Runs of layers, each as long as all ``chunk_count`` chunks fit ``byte_count``.

    And how many chunks of one of them do; at least one of one layer.
    """
    stride = max(section.slice_stride for section in sections)
    first, stop = sections[0].first_layer, sections[-1].stop_layer
    length = max(1, min(stop - first, byte_count // (chunk_count * stride)))
    bands = tuple(range(one, min(one + length, stop)) for one in range(first, stop, length))
    return bands, max(1, min(chunk_count, byte_count // (length * stride)))


def sections_of(layout: StateLayout) -> tuple[Section, ...]:
    """The sections of a layout in the order of its layers; raises as ``first_stored_layer``."""
    sections: list[Section] = []
    layer = first_stored_layer(layout)
    for state, group in groupby(layout.layers[layer:]):
        layer_count = len(tuple(group))
        sections.append(
            Section(
                first_layer=layer,
                layer_count=layer_count,
                slice_stride=align_up(state.token_bytes * layout.chunk_tokens),
            )
        )
        layer += layer_count
    return tuple(sections)
