"""Where the slices of a call lie in an arena, and whether they do. Pure."""

import math
from collections.abc import Sequence

from kvstored_client.testing.refusal import refuse
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import BLOCKS_PER_CALL_MAX, FRAGMENT_BYTES_MIN
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2


def fragments(
    placement: common_pb2.Placement, *, chunk: int, layer: int, byte_count: int, chunk_count: int
) -> list[tuple[int, int]]:
    """(first byte, bytes) of each fragment of a slice, counted from the call's first layer."""
    start = placement.base + layer * placement.layer_stride
    if not placement.block_offsets:
        return [(start + chunk * placement.chunk_stride, byte_count)]
    count = fragments_per_slice(placement, chunk_count)
    blocks = placement.block_offsets[chunk * count : (chunk + 1) * count]
    return [(start + block, byte_count // count) for block in blocks]


def fragments_per_slice(placement: common_pb2.Placement, chunk_count: int) -> int:
    """Into how many equal fragments each slice of a call is cut."""
    return len(placement.block_offsets) // chunk_count or 1


def check_put_placement(
    request: store_pb2.PutRequest, layout: StateLayout, *, arena_bytes: int
) -> None:
    """Raises RefusedError unless every slice of a put lies in the arena and can be cut."""
    chunk_count = len(request.chunks)
    if layout.is_encoded:
        sizes = list(map(max, zip(*(chunk.slice_bytes for chunk in request.chunks), strict=True)))
        check_placement(request.source, chunk_count, sizes, arena_bytes=arena_bytes)
        _check_whole(request.source, chunk_count)
        return
    counts = [chunk.token_count for chunk in request.chunks]
    layers = range(layout.layer_count)
    for count in {min(counts), max(counts)}:
        sizes = [layout.slice_bytes(layer, count) for layer in layers]
        check_placement(request.source, chunk_count, sizes, arena_bytes=arena_bytes)
    _check_cuts(request.source, chunk_count, layout, math.gcd(*counts))


def check_read_placement(
    request: store_pb2.ReadRequest, layout: StateLayout, *, arena_bytes: int
) -> None:
    """Raises RefusedError unless every slice of a read lies in the arena and can be cut."""
    layers = range(request.first_layer, request.first_layer + request.layer_count)
    sizes = [layout.slice_bytes(layer) for layer in layers]
    check_placement(request.destination, len(request.keys), sizes, arena_bytes=arena_bytes)
    if layout.is_encoded:
        _check_whole(request.destination, len(request.keys))


def check_placement(
    placement: common_pb2.Placement,
    chunk_count: int,
    slice_bytes: Sequence[int],
    *,
    arena_bytes: int,
) -> None:
    """Raises RefusedError unless slices of these sizes, one for each layer, fit."""
    offsets = placement.block_offsets
    if len(offsets) > BLOCKS_PER_CALL_MAX:
        refuse(Reason.LIMIT_EXCEEDED, f"the placement has {len(offsets)} block offsets")
    if offsets and len(offsets) % chunk_count:
        refuse(
            Reason.ARENA_RANGE,
            f"{len(offsets)} block offsets cannot be shared out evenly to {chunk_count} chunks",
        )
    count = fragments_per_slice(placement, chunk_count)
    if any(size % count for size in slice_bytes):
        refuse(Reason.ARENA_RANGE, f"a slice cannot be cut into {count} equal fragments")
    if count > 1 and min(filter(None, slice_bytes), default=0) < count * FRAGMENT_BYTES_MIN:
        refuse(
            Reason.ARENA_RANGE,
            f"{count} fragments of a slice have less than {FRAGMENT_BYTES_MIN} bytes each",
        )
    farthest = max(offsets, default=(chunk_count - 1) * placement.chunk_stride)
    end = farthest + max(
        placement.base + layer * placement.layer_stride + size // count
        for layer, size in enumerate(slice_bytes)
    )
    if end > arena_bytes:
        refuse(
            Reason.ARENA_RANGE,
            f"the placement ends at byte {end} of an arena of {arena_bytes} bytes",
        )


def _check_cuts(
    placement: common_pb2.Placement, chunk_count: int, layout: StateLayout, token_count: int
) -> None:
    count = fragments_per_slice(placement, chunk_count)
    layers = range(layout.layer_count)
    if any(layout.slice_bytes(layer, token_count) % count for layer in layers):
        refuse(Reason.ARENA_RANGE, f"a slice cannot be cut into {count} equal fragments")


def _check_whole(placement: common_pb2.Placement, chunk_count: int) -> None:
    if fragments_per_slice(placement, chunk_count) > 1:
        refuse(Reason.ARENA_RANGE, "a slice of a codec cannot be cut into fragments")
