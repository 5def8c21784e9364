"""Sessions over gRPC: tokens, layouts, and what the end of one means."""

import asyncio

import grpc
import pytest

from kvstored import package_version
from kvstored.format.identity import namespace_id
from kvstored.server import server as server_module
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, common_pb2, session_pb2, store_pb2
from tests.kvstored.server.caller import KEYS, LAYOUT, Caller, calling, match, reason_of
from tests.kvstored.server.served import ARENA_BYTES, EPOCH, Served
from tests.support.waiting import PATIENCE_S, until


async def test_ping(caller: Caller) -> None:
    reply = await caller.session.Ping(session_pb2.PingRequest(), metadata=caller.peer.metadata)
    assert (reply.epoch, reply.version) == (EPOCH, package_version())


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
    nameless, odd = LAYOUT.to_proto(), LAYOUT.to_proto()
    nameless.model = ""
    odd.dtype = "whatever"
    for layout in (broken, nameless, odd, common_pb2.StateLayout()):
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


async def test_the_end_of_a_session_waits_for_its_put(served: Served) -> None:
    served.store.hold.clear()
    async with calling(served, 2 * ARENA_BYTES) as caller:
        put = asyncio.create_task(caller.put(KEYS))
        await asyncio.to_thread(served.store.puts_begun.acquire)
        put.cancel()
    await until(lambda: served.session_count == 0)
    # The copy still uses the arena of the session that is gone: there is no memory for this one.
    welcome, _, client = await served.hello(
        session_pb2.Hello(protocol_version=PROTOCOL_VERSION, arena_bytes=4 * ARENA_BYTES)
    )
    client.close()
    assert "arenas_bytes_max" in welcome.refusal
    served.store.hold.set()
    await until(lambda: len(served.store.stored) == len(KEYS))
    assert {chunk.namespace_id for chunk in served.store.stored} == {namespace_id("team")}


async def test_the_end_of_a_session_cancels_its_reads_and_pins(served: Served) -> None:
    async with calling(served) as caller:
        await caller.put(KEYS)
        await match(caller, KEYS, lease_ms=600_000)
        await caller.store.Read(caller.read_request(KEYS), metadata=caller.peer.metadata)
        assert not served.store.streams[0].wait(0)
        assert sum(served.store.pins.values()) == len(KEYS)
    assert await asyncio.to_thread(served.store.streams[0].wait)
    await until(lambda: not sum(served.store.pins.values()))


async def test_a_read_whose_device_answers_nothing_ends_while_its_session_goes_on(
    served: Served,
) -> None:
    """What waits of it is given up by the clock: nothing that ends calls the server."""
    async with calling(served) as caller:
        await caller.put(KEYS)
        await caller.store.Read(caller.read_request(KEYS), metadata=caller.peer.metadata)
        stream = served.store.streams[0]
        stream.is_late = True
        await until(lambda: served.store.given_up == [stream])
        assert stream.wait(0)


async def test_draining_lets_calls_end_and_refuses_new_ones(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "DRAIN_S", PATIENCE_S)
    served.store.hold.clear()
    async with calling(served) as caller:
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
    async with calling(served) as caller:
        put = asyncio.create_task(caller.put(KEYS, ack=store_pb2.Ack.ACK_DURABLE))
        await asyncio.to_thread(served.store.puts_begun.acquire)
        served.stop.set()
        with pytest.raises(grpc.aio.AioRpcError):
            await put
        await served.task
    assert "cut off" in caplog.text
