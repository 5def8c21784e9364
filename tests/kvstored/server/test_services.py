"""The services over gRPC, with the fake store below them."""

import asyncio
import os
import select
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass

import grpc
import numpy as np
import pytest

from kvstored import __version__
from kvstored.format.identity import namespace_id
from kvstored.server import server as server_module
from kvstored.server import session_socket
from kvstored.server.access import Credentials
from kvstored.server.store_servicer import INLINE_CHUNKS_MAX
from kvstored_contract.board import Board, BoardWord, SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import REASON_METADATA, Reason
from kvstored_protos.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    sequence_pb2,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
)
from tests.kvstored.server.conftest import ARENA_BYTES, EPOCH, NOT_ADMIN, Peer, Served
from tests.support.waiting import until

LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 16),) * 2, chunk_tokens=4
)
KEYS = [bytes([number]) * 32 for number in range(4)]


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
            deadline_ms=1000,
        )
        return await self.store.Put(request, metadata=self.peer.metadata)

    def read_request(self, keys: list[bytes], **changes: int) -> store_pb2.ReadRequest:
        values: dict[str, int] = {
            "order": store_pb2.Order.ORDER_TAIL_FIRST,
            "first_layer": 0,
            "layer_count": 2,
            "board_offset": 32768,
            "deadline_ms": 1000,
        }
        values.update(changes)
        return store_pb2.ReadRequest(
            layout_id=LAYOUT.layout_id,
            keys=keys,
            destination=common_pb2.Placement(layer_stride=64, chunk_stride=128),
            **values,
        )


@pytest.fixture
async def caller(served: Served) -> AsyncIterator[Caller]:
    async with served.peer() as peer:
        caller = Caller(served, peer)
        reply = await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        assert reply.layout_id == LAYOUT.layout_id
        yield caller


async def reason_of(call: Awaitable[object]) -> Reason:
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await call
    assert info.value.details()
    return Reason[told_reason(info.value)]


def told_reason(error: grpc.aio.AioRpcError) -> str:
    metadata: grpc.aio.Metadata = error.trailing_metadata()
    return str(metadata[REASON_METADATA])


async def test_ping(caller: Caller) -> None:
    reply = await caller.session.Ping(session_pb2.PingRequest(), metadata=caller.peer.metadata)
    assert (reply.epoch, reply.version) == (EPOCH, __version__)


@pytest.mark.parametrize("metadata", [(), (("kvstored-token", "guess"),)])
async def test_no_call_without_a_token(
    caller: Caller, metadata: tuple[tuple[str, str], ...]
) -> None:
    ping = caller.session.Ping(session_pb2.PingRequest(), metadata=metadata)
    assert await reason_of(ping) is Reason.TOKEN_UNKNOWN
    stats = caller.admin.Stats(admin_pb2.StatsRequest(), metadata=metadata)
    assert await reason_of(stats) is Reason.TOKEN_UNKNOWN


async def test_bad_layouts(caller: Caller) -> None:
    broken = LAYOUT.to_proto()
    broken.chunk_tokens = 0
    for layout in (broken, common_pb2.StateLayout()):
        call = caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=layout), metadata=caller.peer.metadata
        )
        assert await reason_of(call) is Reason.LAYOUT_INVALID
    large = LAYOUT.to_proto()
    large.chunk_tokens = 2000
    call = caller.session.RegisterLayout(
        session_pb2.RegisterLayoutRequest(layout=large), metadata=caller.peer.metadata
    )
    assert await reason_of(call) is Reason.LAYOUT_INVALID


async def test_put(caller: Caller) -> None:
    first = await caller.put(KEYS[:2])
    assert [result.outcome for result in first.results] == [1, 1]
    second = await caller.put(KEYS[:3], ack=store_pb2.Ack.ACK_DURABLE)
    assert [result.outcome for result in second.results] == [2, 2, 1]


async def test_put_that_never_becomes_durable(caller: Caller) -> None:
    caller.served.store.durable = Reason.DEVICE_FAILED
    staged = await caller.put(KEYS[:1])
    assert staged.results[0].outcome == store_pb2.PUT_OUTCOME_STORED
    durable = await caller.put(KEYS[1:2], ack=store_pb2.Ack.ACK_DURABLE)
    assert durable.results[0].outcome == store_pb2.PUT_OUTCOME_REJECTED
    assert durable.results[0].reason == Reason.DEVICE_FAILED


async def test_bad_puts(caller: Caller) -> None:
    assert await reason_of(caller.put([])) is Reason.FIELD_INVALID
    assert await reason_of(caller.put(KEYS, ack=0)) is Reason.FIELD_INVALID
    assert await reason_of(caller.put(KEYS, stride=ARENA_BYTES)) is Reason.ARENA_RANGE
    unknown = caller.store.Put(
        store_pb2.PutRequest(layout_id=b"x", ack=store_pb2.Ack.ACK_STAGED),
        metadata=caller.peer.metadata,
    )
    assert await reason_of(unknown) is Reason.LAYOUT_UNKNOWN


async def match(caller: Caller, keys: list[bytes], lease_ms: int = 0) -> store_pb2.MatchReply:
    return await caller.store.Match(
        store_pb2.MatchRequest(layout_id=LAYOUT.layout_id, keys=keys, lease_ms=lease_ms),
        metadata=caller.peer.metadata,
    )


async def test_match(caller: Caller) -> None:
    await caller.put(KEYS[:2])
    assert (await match(caller, KEYS)).matched_chunks == 2
    assert (await match(caller, [])).matched_chunks == 0
    assert (await match(caller, KEYS[3:], lease_ms=10)).lease_id == 0
    many = [*KEYS[:2], *[b"z" * 32] * INLINE_CHUNKS_MAX]
    assert (await match(caller, many)).matched_chunks == 2
    assert await reason_of(match(caller, KEYS, lease_ms=2**31)) is Reason.FIELD_INVALID


async def test_match_with_lease(caller: Caller) -> None:
    await caller.put(KEYS[:3])
    reply = await match(caller, KEYS, lease_ms=60_000)
    store = caller.served.store
    assert reply.matched_chunks == 3
    assert sum(store.pins.values()) == 3
    unpin = store_pb2.UnpinRequest(lease_id=reply.lease_id)
    await caller.store.Unpin(unpin, metadata=caller.peer.metadata)
    assert sum(store.pins.values()) == 0
    again = caller.store.Unpin(unpin, metadata=caller.peer.metadata)
    assert await reason_of(again) is Reason.LEASE_UNKNOWN


async def test_a_chunk_evicted_before_its_pin_ends_the_match(caller: Caller) -> None:
    await caller.put(KEYS)
    caller.served.store.evicted_before_pin = {KEYS[2]}
    assert (await match(caller, KEYS, lease_ms=1000)).matched_chunks == 2


async def test_pin(caller: Caller) -> None:
    await caller.put(KEYS[1:3])
    request = store_pb2.PinRequest(layout_id=LAYOUT.layout_id, keys=KEYS, lease_ms=60_000)
    reply = await caller.store.Pin(request, metadata=caller.peer.metadata)
    assert reply.pinned_chunks == 2
    assert reply.lease_id
    request.lease_ms = 0
    call = caller.store.Pin(request, metadata=caller.peer.metadata)
    assert await reason_of(call) is Reason.FIELD_INVALID


async def test_leases_expire(caller: Caller) -> None:
    await caller.put(KEYS)
    await match(caller, KEYS, lease_ms=1)
    await until(lambda: not sum(caller.served.store.pins.values()))


@pytest.mark.parametrize("chunk_count", [2, INLINE_CHUNKS_MAX + 1])
async def test_read(served: Served, chunk_count: int) -> None:
    async with served.peer(4 * ARENA_BYTES) as peer:
        caller = Caller(served, peer)
        await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        keys = [number.to_bytes(32, "big") for number in range(chunk_count)]
        board_offset = 2 * ARENA_BYTES
        reply = await caller.store.Read(
            caller.read_request(keys, board_offset=board_offset), metadata=peer.metadata
        )
        assert (reply.dram_chunks, reply.nvme_chunks) == (1, 2)
        served.store.streams[0].finish()
        view = memoryview(peer.arena)[board_offset:]
        board = Board(view, chunk_count=chunk_count, layer_count=2)
        assert board.words[BoardWord.FINISHED] == 1
        assert np.all(board.states == SliceState.RESIDENT)
        assert select.select([peer.descriptors[1]], [], [], 10)[0]
        assert os.eventfd_read(peer.descriptors[1]) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": 0}, Reason.FIELD_INVALID),
        ({"order": 9}, Reason.FIELD_INVALID),
        ({"layer_count": 0}, Reason.FIELD_INVALID),
        ({"first_layer": 1}, Reason.FIELD_INVALID),
        ({"board_offset": 4}, Reason.ARENA_RANGE),
        ({"board_offset": ARENA_BYTES - 64}, Reason.ARENA_RANGE),
        ({"deadline_ms": 0}, Reason.FIELD_INVALID),
        ({"deadline_ms": 2**31}, Reason.FIELD_INVALID),
    ],
)
async def test_bad_reads(caller: Caller, changes: dict[str, int], reason: Reason) -> None:
    call = caller.store.Read(caller.read_request(KEYS, **changes), metadata=caller.peer.metadata)
    assert await reason_of(call) is reason
    assert caller.served.store.streams == []


async def test_a_destination_outside_the_arena(caller: Caller) -> None:
    request = caller.read_request(KEYS)
    request.destination.base = ARENA_BYTES - 64
    call = caller.store.Read(request, metadata=caller.peer.metadata)
    assert await reason_of(call) is Reason.ARENA_RANGE


async def test_delete(caller: Caller) -> None:
    await caller.put(KEYS[:2])
    reply = await caller.store.Delete(
        store_pb2.DeleteRequest(keys=KEYS), metadata=caller.peer.metadata
    )
    assert reply.deleted_chunks == 2
    assert (await match(caller, KEYS)).matched_chunks == 0


async def test_a_fault_of_the_daemon_is_told_without_its_cause(caller: Caller) -> None:
    caller.served.store.failure = RuntimeError("secret")
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await match(caller, KEYS)
    assert info.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(info.value.details())
    assert told_reason(info.value) == "INTERNAL"


async def test_the_end_of_a_session_waits_for_its_put(served: Served) -> None:
    served.store.hold.clear()
    async with served.peer() as peer:
        caller = Caller(served, peer)
        await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        put = asyncio.create_task(caller.put(KEYS))
        await asyncio.to_thread(served.store.puts_begun.acquire)
        put.cancel()
    # The copy still uses the arena of the session that is gone.
    served.store.hold.set()
    assert {chunk.namespace_id for chunk in served.store.stored} <= {namespace_id("team")}


async def test_the_end_of_a_session_cancels_its_reads_and_pins(served: Served) -> None:
    async with served.peer() as peer:
        caller = Caller(served, peer)
        await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        await caller.put(KEYS)
        await match(caller, KEYS, lease_ms=600_000)
        await caller.store.Read(caller.read_request(KEYS), metadata=peer.metadata)
        assert not served.store.streams[0].wait(0)
        assert sum(served.store.pins.values()) == len(KEYS)
    assert await asyncio.to_thread(served.store.streams[0].wait, 20)
    await until(lambda: not sum(served.store.pins.values()))


async def test_sequences(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    created = await stub.Create(
        sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id), metadata=metadata
    )
    assert (created.name, created.layout_id) == ("s", LAYOUT.layout_id)
    appended = await stub.AppendChunks(
        sequence_pb2.AppendChunksRequest(name="s", keys=KEYS), metadata=metadata
    )
    assert list(appended.keys) == KEYS
    fork = await stub.Fork(
        sequence_pb2.ForkSequenceRequest(name="s", new_name="f", keep_chunks=3), metadata=metadata
    )
    assert (fork.name, list(fork.keys)) == ("f", KEYS[:3])
    drop = sequence_pb2.TruncateSequenceRequest(name="f", drop_chunks=1)
    front = await stub.TruncateFront(drop, metadata=metadata)
    assert (list(front.keys), front.dropped_chunks) == (KEYS[1:3], 1)
    back = await stub.TruncateBack(drop, metadata=metadata)
    assert list(back.keys) == KEYS[1:2]
    assert (
        list((await stub.Get(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)).keys)
        == (KEYS[1:2])
    )
    listed = await stub.List(sequence_pb2.ListSequencesRequest(), metadata=metadata)
    assert list(listed.names) == ["f", "s"]
    await stub.Delete(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)
    gone = stub.Get(sequence_pb2.SequenceRequest(name="f"), metadata=metadata)
    assert await reason_of(gone) is Reason.SEQUENCE_UNKNOWN


async def test_bad_sequence_calls(caller: Caller) -> None:
    stub, metadata = caller.sequences, caller.peer.metadata
    create = sequence_pb2.CreateSequenceRequest(name="s", layout_id=LAYOUT.layout_id)
    await stub.Create(create, metadata=metadata)
    assert await reason_of(stub.Create(create, metadata=metadata)) is Reason.SEQUENCE_EXISTS
    nameless = stub.Get(sequence_pb2.SequenceRequest(), metadata=metadata)
    assert await reason_of(nameless) is Reason.FIELD_INVALID
    keyless = stub.AppendChunks(sequence_pb2.AppendChunksRequest(name="s"), metadata=metadata)
    assert await reason_of(keyless) is Reason.FIELD_INVALID
    conflict = stub.AppendChunks(
        sequence_pb2.AppendChunksRequest(name="s", keys=KEYS, expected_chunks=1), metadata=metadata
    )
    assert await reason_of(conflict) is Reason.SEQUENCE_CONFLICT


async def test_admin(caller: Caller) -> None:
    await caller.put(KEYS)
    stub, metadata = caller.admin, caller.peer.metadata
    stats = await stub.Stats(admin_pb2.StatsRequest(), metadata=metadata)
    assert (stats.epoch, stats.chunk_count, stats.session_count) == (7, len(KEYS), 1)
    assert stats.counters["hits"] == 3
    assert stats.devices[0].path == "/dev/x"
    listed = await stub.ListChunks(admin_pb2.ListChunksRequest(limit=3), metadata=metadata)
    assert (len(listed.chunks), listed.truncated) == (3, True)
    inspect = admin_pb2.InspectRequest(key_prefix=KEYS[3].hex()[:5].upper())
    detail = await stub.Inspect(inspect, metadata=metadata)
    assert detail.chunk.key == KEYS[3]
    assert detail.slices[0].checksum == 9


async def test_bad_admin_calls(caller: Caller) -> None:
    stub, metadata = caller.admin, caller.peer.metadata
    unlimited = stub.ListChunks(admin_pb2.ListChunksRequest(), metadata=metadata)
    assert await reason_of(unlimited) is Reason.FIELD_INVALID
    for prefix in ("xyz", "0" * 65):
        call = stub.Inspect(admin_pb2.InspectRequest(key_prefix=prefix), metadata=metadata)
        assert await reason_of(call) is Reason.FIELD_INVALID
    absent = stub.Inspect(admin_pb2.InspectRequest(key_prefix="ff"), metadata=metadata)
    assert await reason_of(absent) is Reason.NOT_STORED


async def test_draining_lets_calls_end_and_refuses_new_ones(served: Served) -> None:
    served.store.hold.clear()
    async with served.peer() as peer:
        caller = Caller(served, peer)
        await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        put = asyncio.create_task(caller.put(KEYS))
        await asyncio.to_thread(served.store.puts_begun.acquire)
        served.stop.set()
        await until(lambda: not served.options.socket.exists())
        assert await reason_of(match(caller, KEYS)) is Reason.DRAINING
        served.store.hold.set()
        assert len((await put).results) == len(KEYS)


async def test_calls_that_do_not_end_are_cut_off(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "DRAIN_S", 0.01)
    served.store.durable = None
    async with served.peer() as peer:
        caller = Caller(served, peer)
        await caller.session.RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        put = asyncio.create_task(caller.put(KEYS, ack=store_pb2.Ack.ACK_DURABLE))
        await asyncio.to_thread(served.store.puts_begun.acquire)
        served.stop.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await put
        await served.task
    assert "cut off" in caplog.text


async def test_only_administrators_may_use_the_admin_service(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Credentials(pid=1, uid=NOT_ADMIN, gid=1)
    monkeypatch.setattr(session_socket, "peer_credentials", lambda _: user)
    async with served.peer() as peer:
        assert not peer.welcome.admin
        stub = admin_pb2_grpc.AdminServiceStub(peer.channel)
        for call in (
            stub.Stats(admin_pb2.StatsRequest(), metadata=peer.metadata),
            stub.ListChunks(admin_pb2.ListChunksRequest(limit=1), metadata=peer.metadata),
            stub.Inspect(admin_pb2.InspectRequest(), metadata=peer.metadata),
        ):
            assert await reason_of(call) is Reason.NOT_ADMIN
