"""Well-formed requests of a raw session, to be bent by tests."""

from dataclasses import replace

import grpc

from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_protos.v1 import common_pb2, session_pb2, store_pb2
from tests.faults.clients.raw_session import Answer, RawSession

STORE = "/kvstored.v1.StoreService/"
SESSION = "/kvstored.v1.SessionService/"
DEADLINE_MS = 60_000

LAYOUT = StateLayout(
    model="hostile", dtype="float32", layers=(LayerState(StateKind.KV, 64),) * 4, chunk_tokens=64
)
"""Slices of one page, so that a chunk is four pages and a header."""
ENCODED = replace(LAYOUT, codec="zstd")
"""The same, but slices have lengths of their own."""
CHUNK_BYTES = LAYOUT.layer_count * LAYOUT.layer_stride


def hostile_key(number: int) -> bytes:
    """A key that no witness uses."""
    return b"hostile".ljust(28, b".") + number.to_bytes(4, "big")


def register(session: RawSession, layout: StateLayout = LAYOUT) -> None:
    """Makes a layout usable."""
    request = session_pb2.RegisterLayoutRequest(layout=layout.to_proto())
    answer = session.call(SESSION + "RegisterLayout", request.SerializeToString())
    assert answer.status is grpc.StatusCode.OK, answer


def put_of(
    keys: list[bytes],
    *,
    layout: StateLayout = LAYOUT,
    base: int = 0,
    chunk_stride: int = CHUNK_BYTES,
    deadline_ms: int = DEADLINE_MS,
) -> bytes:
    """A durable put of complete chunks, one after the other from ``base`` on."""
    return store_pb2.PutRequest(
        layout_id=layout.layout_id,
        chunks=[store_pb2.PutChunk(key=key, token_count=layout.chunk_tokens) for key in keys],
        source=common_pb2.Placement(
            base=base, layer_stride=layout.layer_stride, chunk_stride=chunk_stride
        ),
        ack=store_pb2.ACK_DURABLE,
        deadline_ms=deadline_ms,
    ).SerializeToString()


def read_of(
    keys: list[bytes],
    *,
    board_offset: int,
    layout: StateLayout = LAYOUT,
    base: int = 0,
    chunk_stride: int = CHUNK_BYTES,
    deadline_ms: int = DEADLINE_MS,
    block_offsets: range = range(0),
) -> bytes:
    """A read of all layers."""
    return store_pb2.ReadRequest(
        layout_id=layout.layout_id,
        keys=keys,
        order=store_pb2.ORDER_TAIL_FIRST,
        layer_count=layout.layer_count,
        destination=common_pb2.Placement(
            base=base,
            layer_stride=layout.layer_stride,
            chunk_stride=chunk_stride,
            block_offsets=block_offsets,
        ),
        board_offset=board_offset,
        deadline_ms=deadline_ms,
    ).SerializeToString()


def pin_of(keys: list[bytes], *, layout: StateLayout = LAYOUT, lease_ms: int = 600_000) -> bytes:
    """A lease on chunks."""
    return store_pb2.PinRequest(
        layout_id=layout.layout_id, keys=keys, lease_ms=lease_ms
    ).SerializeToString()


def must(answer: Answer) -> Answer:
    """The answer, which has to be a reply."""
    assert answer.status is grpc.StatusCode.OK, answer
    return answer
