"""What a store serves of chunks: the bytes of their slices, as a client would get them."""

import time
from collections.abc import Sequence

from kvstored.store.read.plan import Order
from kvstored.tiers.chunks.requests import ReadRequest
from kvstored.tiers.tiered_store import TieredStore
from kvstored_contract.board import Board, SliceState, board_bytes
from kvstored_contract.layout import StateLayout
from tests.faults.power.chunks import NAMESPACE, placement_of
from tests.support.waiting import PATIENCE_S

Slices = list[bytes | None]
"""The slices of a chunk that were served; None for those that were not."""


def read_slices(store: TieredStore, layout: StateLayout, keys: Sequence[bytes]) -> list[Slices]:
    """What is served of each chunk; slices of a short one end with bytes that mean nothing."""
    if not keys:
        return []
    layers = range(layout.layer_count)
    placement = placement_of(layout)
    arena = bytearray(placement.chunk_stride * len(keys))
    has_lengths = layout.is_encoded
    size = board_bytes(
        chunk_count=len(keys), layer_count=layout.layer_count, has_lengths=has_lengths
    )
    board = Board(
        memoryview(bytearray(size)),
        chunk_count=len(keys),
        layer_count=layout.layer_count,
        has_lengths=has_lengths,
    )
    stream = store.read_path.read(
        ReadRequest(
            namespace_id=NAMESPACE,
            layout=layout,
            keys=tuple(keys),
            order=Order.HEAD_FIRST,
            first_layer=0,
            layer_count=layout.layer_count,
            arena=memoryview(arena),
            takes_transfers=False,
            placement=placement,
            board=board,
            notify=lambda: None,
            window_bytes=0,
            deadline=time.monotonic() + PATIENCE_S,
        )
    )
    if not stream.wait(PATIENCE_S):
        raise TimeoutError("a read does not end")

    is_served = (board.states == SliceState.RESIDENT).tolist()

    def part(index: int, layer: int) -> bytes | None:
        if not is_served[index][layer]:
            return None
        start = index * placement.chunk_stride + layer * placement.layer_stride
        length = layout.slice_bytes(layer)
        if board.lengths is not None:
            length = board.lengths.item(index, layer)
        return bytes(arena[start : start + length])

    return [[part(index, layer) for layer in layers] for index in range(len(keys))]
