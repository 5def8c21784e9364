"""What messages of the store service ask of the tiers; a thread makes large ones."""

import math
from collections.abc import Sequence

from kvstored.server import fields
from kvstored.server.session import Session
from kvstored.store.read.placement import Placement, PlacementError
from kvstored.store.read.plan import Order
from kvstored.tiers.chunks.requests import AppendRequest, NewChunk, PutRequest, ReadRequest
from kvstored_contract.board import Board
from kvstored_contract.layout import StateLayout
from kvstored_protos.v1 import common_pb2, store_pb2


def put_request(request: store_pb2.PutRequest, session: Session, *, deadline: float) -> PutRequest:
    """The put that a message asks for; raises RefusedError or PlacementError."""
    layout = session.layouts.find(request.layout_id)
    fields.check_chunk_count(len(request.chunks))
    chunks = fields.new_chunks(request.chunks, layout=layout)
    return PutRequest(
        namespace_id=session.namespace_id,
        layout=layout,
        chunks=chunks,
        source=session.arena.view,
        placement=source_placement(request.source, session=session, layout=layout, chunks=chunks),
        deadline=deadline,
        is_wanted=session.is_open,
    )


def append_request(
    request: store_pb2.AppendRequest, session: Session, *, deadline: float
) -> AppendRequest:
    """The append that a message asks for; raises RefusedError or LayoutError."""
    layout = session.layouts.find(request.layout_id)
    items = fields.append_items(request, layout)
    arena = session.arena
    start, end = fields.snapshot_range(request, layout=layout, arena_bytes=arena.byte_count)
    return AppendRequest(
        namespace_id=session.namespace_id,
        session_id=session.identity.session_id,
        layout=layout,
        row_count=request.row_count,
        source=arena.view[start:end],
        items=items,
        deadline=deadline,
    )


def source_placement(
    message: common_pb2.Placement,
    *,
    session: Session,
    layout: StateLayout,
    chunks: Sequence[NewChunk],
) -> Placement:
    """A placement that holds for every length of chunk in the put.

    The longest chunk reaches farthest, the shortest has the smallest fragments, and all can be
    cut into equal fragments where their greatest common divisor can. Encoded slices are in one
    fragment each.
    """
    if layout.is_encoded:
        slices = zip(*[chunk.slice_bytes for chunk in chunks], strict=True)
        return whole_placement(
            message, session=session, chunk_count=len(chunks), slice_bytes=list(map(max, slices))
        )
    token_counts = [chunk.token_count for chunk in chunks]
    layers = range(layout.layer_count)
    for token_count in {min(token_counts), max(token_counts)}:
        placement = fields.checked_placement(
            message,
            arena_bytes=session.arena.byte_count,
            chunk_count=len(chunks),
            slice_bytes=[layout.slice_bytes(layer, token_count) for layer in layers],
        )
    fragments, unit = placement.fragments_per_slice(len(chunks)), math.gcd(*token_counts)
    if any(layout.slice_bytes(layer, unit) % fragments for layer in layers):
        raise PlacementError(f"a slice cannot be cut into {fragments} equal fragments")
    return placement


def whole_placement(
    message: common_pb2.Placement, *, session: Session, chunk_count: int, slice_bytes: list[int]
) -> Placement:
    """A placement of encoded slices, which cannot be cut."""
    placement = fields.checked_placement(
        message,
        arena_bytes=session.arena.byte_count,
        chunk_count=chunk_count,
        slice_bytes=slice_bytes,
    )
    if placement.fragments_per_slice(chunk_count) > 1:
        raise PlacementError("a slice of a codec cannot be cut into fragments")
    return placement


def read_request(
    request: store_pb2.ReadRequest, session: Session, *, deadline: float
) -> ReadRequest:
    """The read that a message asks for; raises RefusedError or PlacementError."""
    layout = session.layouts.find(request.layout_id)
    keys = fields.checked_keys(request.keys)
    fields.check_layers(request.first_layer, request.layer_count, layout)
    arena = session.arena
    layers = range(request.first_layer, request.first_layer + request.layer_count)
    slice_bytes = [layout.slice_bytes(layer) for layer in layers]
    if layout.is_encoded:
        placement = whole_placement(
            request.destination, session=session, chunk_count=len(keys), slice_bytes=slice_bytes
        )
    else:
        placement = fields.checked_placement(
            request.destination,
            arena_bytes=arena.byte_count,
            chunk_count=len(keys),
            slice_bytes=slice_bytes,
        )
    start, end = fields.board_range(
        request.board_offset,
        arena_bytes=arena.byte_count,
        chunk_count=len(keys),
        layer_count=request.layer_count,
        has_lengths=layout.is_encoded,
    )
    return ReadRequest(
        namespace_id=session.namespace_id,
        layout=layout,
        keys=keys,
        order=fields.enum_value(Order, request.order, "order"),
        first_layer=request.first_layer,
        layer_count=request.layer_count,
        arena=arena.view,
        takes_transfers=arena.is_on_huge_pages,
        placement=placement,
        board=Board(
            arena.view[start:end],
            chunk_count=len(keys),
            layer_count=request.layer_count,
            has_lengths=layout.is_encoded,
        ),
        notify=session.bell.ring,
        window_bytes=request.window_bytes,
        deadline=deadline,
    )
