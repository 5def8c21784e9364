"""The stubs of one session, and what its calls answer."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest

from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import REASON_METADATA, Reason
from kvstored_protos.v1 import (
    admin_pb2_grpc,
    common_pb2,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
)
from tests.kvstored.server.served import ARENA_BYTES, Peer, Served

LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 16),) * 2, chunk_tokens=4
)
KEYS = [bytes([number]) * 32 for number in range(4)]
DEADLINE_MS = 120_000


@dataclass(slots=True)
class Caller:
    """All stubs of one session."""

    served: Served
    peer: Peer

    @property
    def session(self) -> "session_pb2_grpc.SessionServiceAsyncStub":
        return session_pb2_grpc.SessionServiceStub(self.peer.channel)

    @property
    def store(self) -> "store_pb2_grpc.StoreServiceAsyncStub":
        return store_pb2_grpc.StoreServiceStub(self.peer.channel)

    @property
    def sequences(self) -> "sequence_pb2_grpc.SequenceServiceAsyncStub":
        return sequence_pb2_grpc.SequenceServiceStub(self.peer.channel)

    @property
    def admin(self) -> "admin_pb2_grpc.AdminServiceAsyncStub":
        return admin_pb2_grpc.AdminServiceStub(self.peer.channel)

    async def put(
        self, keys: list[bytes], *, ack: int = store_pb2.Ack.ACK_STAGED, stride: int = 128
    ) -> store_pb2.PutReply:
        request = store_pb2.PutRequest(
            layout_id=LAYOUT.layout_id,
            chunks=[store_pb2.PutChunk(key=key, token_count=4) for key in keys],
            source=common_pb2.Placement(layer_stride=64, chunk_stride=stride),
            ack=store_pb2.Ack.ValueType(ack),
            deadline_ms=DEADLINE_MS,
        )
        return await self.store.Put(request, metadata=self.peer.metadata)

    def read_request(self, keys: list[bytes], **changes: int) -> store_pb2.ReadRequest:
        values: dict[str, Any] = {
            "order": store_pb2.Order.ORDER_TAIL_FIRST,
            "first_layer": 0,
            "layer_count": 2,
            "board_offset": 32768,
            "deadline_ms": DEADLINE_MS,
        }
        values.update(changes)
        return store_pb2.ReadRequest(
            layout_id=LAYOUT.layout_id,
            keys=keys,
            destination=common_pb2.Placement(layer_stride=64, chunk_stride=128),
            **values,
        )


@asynccontextmanager
async def calling(served: Served, arena_bytes: int = ARENA_BYTES) -> AsyncIterator[Caller]:
    """A session that has registered the layout, and ends with the body."""
    async with served.peer(arena_bytes) as peer:
        caller = Caller(served, peer)
        reply = await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        assert reply.layout_id == LAYOUT.layout_id
        yield caller


async def match(caller: Caller, keys: list[bytes], lease_ms: int = 0) -> store_pb2.MatchReply:
    return await caller.store.Match(
        store_pb2.MatchRequest(layout_id=LAYOUT.layout_id, keys=keys, lease_ms=lease_ms),
        metadata=caller.peer.metadata,
    )


async def reason_of(call: Awaitable[object]) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await call
    assert info.value.details()
    return Reason[told_reason(info.value)]


def told_reason(error: grpc.aio.AioRpcError) -> str:
    metadata: grpc.aio.Metadata = error.trailing_metadata()
    return str(metadata[REASON_METADATA])
