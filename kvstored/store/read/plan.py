"""The read plan: which bytes of which chunk are read, in which order.

Pure: the result is what a reader executes. A plan has one list for each lane (a
device, or the DRAM tier), because lanes run in parallel and each in its own order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kvstored.format.geometry import ChunkGeometry


class Order(IntEnum):
    """In which order slices become resident. Values are those of the protobuf enum."""

    TAIL_FIRST = 1
    """Last chunk first, each whole (Cake, section 4: load from the back)."""
    LAYER_FIRST = 2
    """Layer by layer over all chunks (HCache, section 4.1; AttentionStore, 3.2.1)."""
    HEAD_FIRST = 3
    """First chunk first, each whole."""


class LayerRun(NamedTuple):
    """Neighbouring layers of one chunk that are read at once.

    ``with_header`` runs begin with the header page. A run of zero layers reads the
    header alone. ``start`` is the first byte within the extent. (A tuple, because a long
    read has thousands.)
    """

    chunk: int
    first_layer: int
    layer_count: int
    with_header: bool
    start: int
    byte_count: int

    @classmethod
    def of(
        cls,
        geometry: ChunkGeometry,
        chunk: int,
        first_layer: int,
        layer_count: int,
        *,
        with_header: bool,
    ) -> "LayerRun":
        """The run of these layers of a chunk."""
        offsets = geometry.slice_offsets
        start = 0 if with_header else offsets[first_layer]
        end = offsets[first_layer + layer_count] if layer_count else offsets[0]
        return cls(chunk, first_layer, layer_count, with_header, start, end - start)

    @property
    def end_layer(self) -> int:
        """First layer after the run."""
        return self.first_layer + self.layer_count


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLimits:
    """How far neighbouring slices are merged.

    Layer-first reads merge layers until a run has ``run_bytes_min``; no run that has
    more than one layer exceeds ``run_bytes_max``.
    """

    run_bytes_min: int
    run_bytes_max: int


def split_layers(
    geometry: ChunkGeometry, *, first_layer: int, layer_count: int, run_bytes: int
) -> list[tuple[int, int]]:
    """Cuts a layer range into (first, count) runs of about ``run_bytes`` each.

    Runs end before the layer that would exceed ``run_bytes``; a larger single layer
    is a run of its own.
    """
    runs: list[tuple[int, int]] = []
    start = first_layer
    end = first_layer + layer_count
    offsets = geometry.slice_offsets
    for layer in range(first_layer + 1, end + 1):
        if layer == end or offsets[layer + 1] - offsets[start] > run_bytes:
            runs.append((start, layer - start))
            start = layer
    return runs


def plan_runs(
    *,
    lanes: Sequence[int | None],
    geometries: Sequence[ChunkGeometry | None],
    order: Order,
    first_layer: int,
    layer_count: int,
    limits: PlanLimits,
) -> dict[int, list[LayerRun]]:
    """Plans one read.

    ``lanes[i]`` and ``geometries[i]`` belong to chunk i; None is a chunk that is not
    stored. Returns the runs of each lane in the order in which they are issued. The
    header of a chunk is part of its first run; where bytes of other layers lie between,
    a run of the header alone precedes it.
    """
    plan: dict[int, list[LayerRun]] = {}
    for chunk, start, count in _ordered(geometries, order, first_layer, layer_count, limits):
        lane, geometry = lanes[chunk], geometries[chunk]
        if lane is None or geometry is None:
            continue
        runs = plan.setdefault(lane, [])
        is_first = start == first_layer
        is_behind_header = geometry.slice_offsets[start] == geometry.slice_offsets[0]
        if is_first and not is_behind_header:
            runs.append(LayerRun.of(geometry, chunk, start, 0, with_header=True))
        with_header = is_first and is_behind_header
        runs.append(LayerRun.of(geometry, chunk, start, count, with_header=with_header))
    return plan


def _ordered(
    geometries: Sequence[ChunkGeometry | None],
    order: Order,
    first_layer: int,
    layer_count: int,
    limits: PlanLimits,
) -> Iterator[tuple[int, int, int]]:
    """Yields (chunk, first layer, layer count) in the order of the whole read."""
    run_bytes = limits.run_bytes_min if order is Order.LAYER_FIRST else limits.run_bytes_max
    cuts: dict[ChunkGeometry, list[tuple[int, int]]] = {}
    for geometry in geometries:
        if geometry is not None and geometry not in cuts:
            cuts[geometry] = split_layers(
                geometry, first_layer=first_layer, layer_count=layer_count, run_bytes=run_bytes
            )
    stored = [(chunk, cuts[geometry]) for chunk, geometry in enumerate(geometries) if geometry]
    if order is Order.LAYER_FIRST:
        # By the first layer, and not by the number of the run: chunks whose slices differ in
        # length are cut at different layers.
        starting: dict[int, list[tuple[int, int, int]]] = {}
        for chunk, runs in stored:
            for start, count in runs:
                starting.setdefault(start, []).append((chunk, start, count))
        for start in sorted(starting):
            yield from starting[start]
        return
    for chunk, runs in reversed(stored) if order is Order.TAIL_FIRST else stored:
        for start, count in runs:
            yield chunk, start, count
