"""The largest calls of one client, and the event loop that all others need."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest

from kvstored.server.store_servicer import INLINE_CHUNKS_MAX, INLINE_READ_CHUNKS_MAX
from kvstored.server.waits import SLICE_ITEMS
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2, store_pb2
from tests.kvstored.server.caller import LAYOUT, Caller, calling, match, told_reason
from tests.kvstored.server.served import ARENA_BYTES, Served
from tests.support.waiting import PATIENCE_S, until

MANY = [number.to_bytes(32, "big") for number in range(2 * INLINE_CHUNKS_MAX)]


@pytest.fixture
async def greedy(served: Served) -> AsyncIterator[Caller]:
    async with calling(served, 4 * ARENA_BYTES) as caller:
        yield caller


@pytest.fixture
async def other(served: Served) -> AsyncIterator[Caller]:
    async with calling(served) as caller:
        yield caller


async def ping(caller: Caller) -> None:
    await caller.session.Ping(
        session_pb2.PingRequest(), metadata=caller.peer.metadata, timeout=PATIENCE_S
    )


async def pin(caller: Caller, keys: list[bytes], lease_ms: int = 60_000) -> store_pb2.PinReply:
    request = store_pb2.PinRequest(layout_id=LAYOUT.layout_id, keys=keys, lease_ms=lease_ms)
    return await caller.store.Pin(request, metadata=caller.peer.metadata)


async def test_a_pin_of_many_chunks_holds_up_no_other_client(
    served: Served, greedy: Caller, other: Caller
) -> None:
    """Bug: the event loop itself pinned them (seen: the ping is never answered)."""
    await greedy.put(MANY[:4])
    served.store.look_hold.clear()
    pinning = asyncio.create_task(pin(greedy, MANY))
    await until(lambda: served.store.looks_begun == 1)
    await ping(other)
    assert (await match(other, MANY[:6])).matched_chunks == 4
    assert not pinning.done()
    served.store.look_hold.set()
    reply = await pinning
    assert list(reply.is_pinned) == [True] * 4 + [False] * (len(MANY) - 4)
    assert reply.lease_id


async def test_a_read_that_waits_for_the_index_holds_up_no_other_client(
    served: Served, greedy: Caller, other: Caller
) -> None:
    """Bug: the event loop asked the index for up to 256 chunks."""
    served.store.look_hold.clear()
    request = greedy.read_request(MANY[: INLINE_READ_CHUNKS_MAX + 1])
    reading = greedy.store.Read(request, metadata=greedy.peer.metadata)
    await until(lambda: served.store.looks_begun == 1)
    await ping(other)
    assert not reading.done()
    served.store.look_hold.set()
    await reading


async def test_large_look_ups_of_a_session_are_done_one_at_a_time(
    served: Served, greedy: Caller
) -> None:
    """More at once would keep the interpreter from others so many times as long."""
    served.store.look_hold.clear()
    pinning = [asyncio.create_task(pin(greedy, MANY)) for _ in range(3)]
    await until(lambda: served.call_count == len(pinning))
    await ping(greedy)
    assert served.store.looks_begun == 1
    served.store.look_hold.set()
    await asyncio.gather(*pinning)


async def test_large_puts_of_a_session_are_made_one_at_a_time(
    served: Served, greedy: Caller
) -> None:
    """Bug: four of them computed at once, and each kept the interpreter from others."""
    served.store.hold.clear()
    putting = [asyncio.create_task(greedy.put(MANY, stride=0)) for _ in range(3)]
    await until(lambda: served.call_count == len(putting))
    await ping(greedy)
    # A small one does not wait for them.
    small = asyncio.create_task(greedy.put(MANY[:2]))
    await until(lambda: served.store.puts_begun._value == 2)
    served.store.hold.set()
    await asyncio.gather(small, *putting)
    assert served.store.puts_begun._value == len(putting) + 1


async def test_pins_that_nobody_waits_for_any_more_are_taken_back(
    served: Served, greedy: Caller
) -> None:
    """Fails when a pin that is given up is not undone (seen: pins stay)."""
    store = served.store
    await greedy.put(MANY[:4])
    store.look_hold.clear()
    pinning = asyncio.create_task(pin(greedy, MANY))
    await until(lambda: store.looks_begun == 1)
    pinning.cancel()
    await asyncio.gather(pinning, return_exceptions=True)
    await until(lambda: served.call_count == 0)
    store.look_hold.set()
    await until(lambda: bool(store.unpinned_at_once))
    assert sum(store.pins.values()) == 0


async def test_leases_that_end_give_chunks_back_in_slices(served: Served, greedy: Caller) -> None:
    """Bug: the event loop unpinned all leases that were due at once, up to 262,144 chunks."""
    store = served.store
    await greedy.put(MANY, stride=0)
    await pin(greedy, MANY, lease_ms=1)
    await until(lambda: sum(store.pins.values()) == 0)
    assert max(store.unpinned_at_once) <= SLICE_ITEMS
    reply = await pin(greedy, MANY)
    unpin = store_pb2.UnpinRequest(lease_id=reply.lease_id)
    await greedy.store.Unpin(unpin, metadata=greedy.peer.metadata)
    assert sum(store.pins.values()) == 0
    assert max(store.unpinned_at_once) <= SLICE_ITEMS


async def test_bad_keys_of_a_large_call_are_refused(greedy: Caller) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await pin(greedy, [*MANY, b"short"])
    assert told_reason(info.value) == Reason.FIELD_INVALID.name
