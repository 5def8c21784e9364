"""The administrators' service over gRPC."""

import pytest

from kvstored.server import session_socket
from kvstored.server.access import Credentials
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc
from tests.kvstored.server.caller import KEYS, Caller, calling, match, reason_of
from tests.kvstored.server.served import ARENA_BYTES, NOT_ADMIN, Served
from tests.support.waiting import until


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


async def test_gauges_of_sessions_and_of_the_index(served: Served, caller: Caller) -> None:
    """Each gauge is another number, and goes back when what it counts has ended."""

    async def gauges() -> tuple[int, ...]:
        stats = await caller.admin.Stats(admin_pb2.StatsRequest(), metadata=caller.peer.metadata)
        assert stats.arenas_capacity_bytes == served.options.limits.arenas_bytes_max
        return (
            stats.session_count,
            stats.arenas_used_bytes // ARENA_BYTES,
            stats.lease_count,
            stats.pinned_chunk_count,
            stats.reads_in_flight_count,
            stats.index_failed,
        )

    assert await gauges() == (1, 1, 0, 0, 0, False)
    async with calling(served, 4 * ARENA_BYTES) as other:
        await other.put(KEYS)
        await match(other, KEYS[:3], lease_ms=60_000)
        await match(caller, KEYS[:2], lease_ms=60_000)
        for holder in (other, caller, caller, caller):
            read = holder.read_request(KEYS[:1])
            await holder.store.Read(read, metadata=holder.peer.metadata)
        assert await gauges() == (2, 5, 2, 3, 4, False)
        served.store.streams[1].finish()
        served.store.index_failed = True
        assert await gauges() == (2, 5, 2, 3, 3, True)
    await until(lambda: served.session_count == 1)
    while (await gauges())[1] != 1:
        pass
    assert await gauges() == (1, 1, 1, 2, 2, True)


async def test_bad_admin_calls(caller: Caller) -> None:
    stub, metadata = caller.admin, caller.peer.metadata
    unlimited = stub.ListChunks(admin_pb2.ListChunksRequest(), metadata=metadata)
    assert await reason_of(unlimited) is Reason.FIELD_INVALID
    for prefix in ("xyz", "0" * 65):
        call = stub.Inspect(admin_pb2.InspectRequest(key_prefix=prefix), metadata=metadata)
        assert await reason_of(call) is Reason.FIELD_INVALID
    absent = stub.Inspect(admin_pb2.InspectRequest(key_prefix="ff"), metadata=metadata)
    assert await reason_of(absent) is Reason.NOT_STORED


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
