"""Requests of the store service. Pure; a malformed argument raises TypeError or ValueError."""

from collections.abc import Sequence

from kvstored_client.values import Ack, AppendItem, NewChunk, Order
from kvstored_client.verbs.placement import Placement
from kvstored_protos.v1 import common_pb2, store_pb2


def placement_message(placement: Placement) -> common_pb2.Placement:
    """The placement as it travels."""
    return common_pb2.Placement(
        base=placement.base,
        layer_stride=placement.layer_stride,
        chunk_stride=placement.chunk_stride,
        block_offsets=placement.block_offsets,
    )


def put_request(
    *,
    layout_id: bytes,
    chunks: Sequence[NewChunk],
    source: Placement,
    ack: Ack,
    timeout_ms: int,
) -> store_pb2.PutRequest:
    """A put of ``chunks`` from ``source``."""
    return store_pb2.PutRequest(
        layout_id=layout_id,
        chunks=[
            store_pb2.PutChunk(
                key=chunk.key,
                parent_key=chunk.parent_key,
                token_count=chunk.token_count,
                stripe=position if chunk.stripe is None else chunk.stripe,
                slice_bytes=chunk.slice_bytes,
                note=chunk.note,
            )
            for position, chunk in enumerate(chunks)
        ],
        source=placement_message(source),
        ack=store_pb2.Ack.ValueType(ack),
        deadline_ms=timeout_ms,
    )


def append_request(
    *,
    layout_id: bytes,
    snapshot_offset: int,
    row_count: int,
    items: Sequence[AppendItem],
    timeout_ms: int,
) -> store_pb2.AppendRequest:
    """An append of rows of the snapshot at ``snapshot_offset``."""
    return store_pb2.AppendRequest(
        layout_id=layout_id,
        snapshot_offset=snapshot_offset,
        row_count=row_count,
        items=[
            store_pb2.AppendItem(
                sequence=item.sequence,
                first_token=item.first_token,
                first_row=item.first_row,
                token_count=item.token_count,
                keys=item.keys,
            )
            for item in items
        ],
        # 0 would leave the choice to the daemon.
        deadline_ms=timeout_ms or 1,
    )


def match_request(
    *, layout_id: bytes, keys: Sequence[bytes], lease_ms: int
) -> store_pb2.MatchRequest:
    """A question for the longest stored prefix of ``keys``."""
    return store_pb2.MatchRequest(layout_id=layout_id, keys=keys, lease_ms=lease_ms)


def read_request(
    *,
    layout_id: bytes,
    keys: Sequence[bytes],
    order: Order,
    first_layer: int,
    layer_count: int,
    destination: Placement,
    board_offset: int,
    window_bytes: int,
    timeout_ms: int,
) -> store_pb2.ReadRequest:
    """A read of ``keys`` into ``destination``, its progress on the board at ``board_offset``."""
    return store_pb2.ReadRequest(
        layout_id=layout_id,
        keys=keys,
        order=store_pb2.Order.ValueType(order),
        first_layer=first_layer,
        layer_count=layer_count,
        destination=placement_message(destination),
        board_offset=board_offset,
        window_bytes=window_bytes,
        deadline_ms=timeout_ms,
    )


def pin_request(*, layout_id: bytes, keys: Sequence[bytes], lease_ms: int) -> store_pb2.PinRequest:
    """A lease on whichever of ``keys`` are stored."""
    return store_pb2.PinRequest(layout_id=layout_id, keys=keys, lease_ms=lease_ms)
