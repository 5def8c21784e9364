"""The asyncio facade: the same flows, its own transport and waits."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import Message

from kvstored_client import (
    AsyncClient,
    DaemonAbsentError,
    HintReport,
    NewChunk,
    Placement,
    QueueEntry,
    Region,
    SliceState,
    StateLayout,
)
from kvstored_client.aio.transport import uninterrupted
from kvstored_client.testing import CallName, Delivery, MemoryDaemon, MemoryStore, StoredChunk
from kvstored_client.verbs import store_verbs
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2, store_pb2
from tests.kvstored_client.conftest import PAYLOAD_BYTES
from tests.kvstored_client.gate import Gate

TOKENS = list(range(40))
NOWHERE = Placement(regions=(), base=0, layer_stride=8192, chunk_stride=3 * 8192)


async def region_of(client: AsyncClient, layout: StateLayout, seed: int) -> Region:
    region = await client.allocate(Placement.contiguous_bytes(layout, 2))
    assert region is not None
    region.view[:] = np.random.default_rng(seed).bytes(region.byte_count)
    return region


async def store(client: AsyncClient, layout: StateLayout) -> tuple[list[bytes], Region]:
    keys = await client.prefix_keys(layout, TOKENS)
    region = await region_of(client, layout, 0)
    report = await client.put(
        layout,
        [NewChunk(key=key, token_count=16) for key in keys],
        Placement.contiguous(region, layout),
    )
    assert report.stored_count == 2
    return keys, region


async def until(gate: Gate, memory: MemoryStore, kind: type[Message]) -> None:
    """Returns when the store is working on such a request."""
    while not memory.asked(kind):
        await asyncio.to_thread(gate.entered.acquire, timeout=30)


async def test_every_verb(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    client = async_client
    keys, source = await store(client, layout)
    assert client.epoch == 1
    assert await client.register(layout)
    match = await client.match(layout, keys, lease_ms=1000)
    assert match.chunk_count == 2
    assert match.lease is not None
    async with match.lease:
        assert match.lease.chunk_count == 2
    assert memory.leases_in_use == 0
    lease = await client.pin(layout, keys, lease_ms=1000)
    assert lease is not None
    assert await lease.release()
    assert not await lease.release()
    target = await region_of(client, layout, 1)
    async with await client.read(layout, keys, Placement.contiguous(target, layout)) as read:
        assert (await read.wait()).resident_prefix == 2
        assert await read.wait_for(0, 1)
        assert await read.wait_layer(2)
        assert read.is_resident(1)
    assert target.view[: 8192 + 4096] != source.view[: 8192 + 4096]
    assert target.view[:4096] == source.view[:4096]
    assert await client.delete(keys) == 2
    assert (await client.admin.stats()).chunk_count == 0
    assert not (await client.admin.list_chunks()).chunks
    memory.chunks[b"q" * 32] = StoredChunk(layout_id=bytes(32), slices=(), token_count=1)
    assert (await client.admin.inspect("71")).chunk.key == b"q" * 32


async def test_changes(async_client: AsyncClient, layout: StateLayout) -> None:
    begin = await async_client.changes()
    assert begin is not None
    keys, _ = await store(async_client, layout)
    told = await async_client.changes(
        epoch=begin.epoch, after_sequence=begin.last_sequence, keys=keys[:1]
    )
    assert told is not None
    assert [change.key for change in told.changes] == keys
    assert told.are_stored == (True,)


async def test_sequences(async_client: AsyncClient, layout: StateLayout) -> None:
    sequences = async_client.sequences
    keys = [bytes([index]) * 32 for index in range(4)]
    assert await sequences.create("talk", layout)
    assert await sequences.append("talk", keys, expected_chunks=0)
    assert await sequences.fork("talk", "branch")
    assert await sequences.truncate_front("branch", 1)
    back = await sequences.truncate_back("branch", 1)
    assert back is not None
    assert back.keys == tuple(keys[1:3])
    assert await sequences.get("branch") == back
    assert await sequences.list() == ["branch", "talk"]
    report = await sequences.hint([QueueEntry(name="talk", place=1)], version=1)
    assert report == HintReport(True, 1)
    assert await sequences.hint([], ["talk"], version=1) == HintReport(False, 1)
    assert await sequences.delete("branch")


async def test_without_a_daemon_everything_is_a_miss(tmp_path: Path, layout: StateLayout) -> None:
    async with AsyncClient(tmp_path / "none.sock", reconnect_interval_s=60) as client:
        keys = [b"k" * 32]
        assert not await client.available()
        assert await client.prefix_keys(layout, TOKENS) == []
        assert await client.allocate(1) is None
        assert (await client.match(layout, keys)).chunk_count == 0
        report = await client.put(layout, [NewChunk(key=keys[0], token_count=1)], NOWHERE)
        assert report.rejected_count == 1
        async with await client.read(layout, keys, NOWHERE) as read:
            assert not await read.wait_for(0)
        assert client.counters["connect_failures"] == 1
        with pytest.raises(DaemonAbsentError):
            await client.admin.stats()


async def test_a_refused_session_says_why(
    tmp_path: Path, layout: StateLayout, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    store.faults.session_refusal = "too many sessions; close one"
    with MemoryDaemon(store, tmp_path) as daemon:
        async with AsyncClient(daemon.socket_path, arena_bytes=4096) as client:
            assert not await client.available()
            assert (await client.match(layout, [bytes(32)])).chunk_count == 0
            assert client.refusal == "too many sessions; close one"
            assert client.counters["match_failed_SessionRefused"] == 1
    assert caplog.text.count("too many sessions") == 1


async def test_a_refusal_is_a_miss(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    memory.faults.refusals[CallName.PUT] = Reason.DRAM_FULL
    chunk = NewChunk(key=b"k" * 32, token_count=16)
    report = await async_client.put(layout, [chunk], NOWHERE)
    assert report.results[0].reason is Reason.DRAM_FULL


async def test_waits_follow_the_board_and_the_death(tmp_path: Path, layout: StateLayout) -> None:
    memory = MemoryStore()
    daemon = MemoryDaemon(memory, tmp_path)
    client = AsyncClient(daemon.socket_path, arena_bytes=1 << 20, reconnect_interval_s=0)
    keys, region = await store(client, layout)
    memory.faults.delivery = Delivery.HELD
    read = await client.read(layout, keys, Placement.contiguous(region, layout))
    held = memory.reads[0]
    waiter = asyncio.create_task(read.wait_for(0))
    await asyncio.sleep(0)
    for layer in range(3):
        held.deliver(0, layer)
    assert await waiter
    assert not await read.wait_for(1, timeout_s=0.01)
    waiters = [asyncio.create_task(read.wait_for(1)), asyncio.create_task(read.wait_layer(0))]
    await asyncio.sleep(0)
    await asyncio.to_thread(daemon.stop)
    assert await asyncio.gather(*waiters) == [False, False]
    assert (await read.wait()).finished
    assert read.state(1, 0) is SliceState.MISSING
    assert not region.is_current
    await read.close()
    assert (await client.match(layout, keys)).chunk_count == 0

    restarted = MemoryDaemon(memory, tmp_path)
    assert (await client.match(layout, keys)).chunk_count == 2
    assert client.epoch == 2
    await client.close()
    assert not await client.available()
    await asyncio.to_thread(restarted.stop)


async def test_a_cancelled_wait_of_a_close_left_a_read_the_memory_of_the_next_one(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    """Bug: what ends a loop cancels every task, also those that nobody else can cancel."""
    memory.faults.reads_hang = True
    memory.faults.keeps_cancelled = True
    region = await region_of(async_client, layout, 0)
    read = await async_client.read(layout, [b"k" * 32], Placement.contiguous(region, layout))
    others = asyncio.all_tasks()
    close = asyncio.create_task(read.close())
    await asyncio.sleep(0.01)
    (wait,) = asyncio.all_tasks() - others - {close}
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await close
    assert async_client.epoch == 0
    assert not region.is_current


async def test_calls_during_a_slow_connect_took_all_threads_of_the_loop(
    tmp_path: Path, layout: StateLayout
) -> None:
    """A daemon that is silent at the handshake held a thread of the loop's own for each call."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(max_workers=2))
    path = tmp_path / "silent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        client = AsyncClient(path, reconnect_interval_s=60)
        calls = [asyncio.create_task(client.match(layout, [b"k" * 32])) for _ in range(8)]
        peer = (await asyncio.to_thread(silent.accept))[0]
        # A caller that gives up leaves the attempt to the others.
        calls[0].cancel()
        async with asyncio.timeout(5):
            await asyncio.to_thread(threading.get_ident)
        assert [call.done() for call in calls] == [True] + [False] * 7
        peer.close()
    matches = await asyncio.gather(*calls[1:])
    assert [match.chunk_count for match in matches] == [0] * 7
    assert client.counters["connect_failures"] == 1
    await client.close()


async def test_a_cancelled_put_is_over_when_the_cancellation_arrives(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    await async_client.match(layout, [b"k" * 32])
    gate = Gate(memory)
    chunk = NewChunk(key=b"k" * 32, token_count=16)
    put = asyncio.create_task(async_client.put(layout, [chunk], NOWHERE))
    await until(gate, memory, store_pb2.PutRequest)
    put.cancel()
    done, _ = await asyncio.wait([put], timeout=0.05)
    assert not done
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert chunk.key in memory.chunks
    assert async_client.epoch == 1


async def test_a_read_whose_start_is_cancelled_is_closed(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    await async_client.match(layout, [b"k" * 32])
    memory.faults.delivery = Delivery.HELD
    gate = Gate(memory)
    read = asyncio.create_task(async_client.read(layout, [b"k" * 32], NOWHERE))
    await until(gate, memory, store_pb2.ReadRequest)
    read.cancel()
    gate.open()
    while not memory.reads or not memory.reads[0].is_cancelled:
        assert not read.done()
        await asyncio.sleep(0)
    memory.reads[0].finish()
    with pytest.raises(asyncio.CancelledError):
        await read
    everything = await async_client.allocate(PAYLOAD_BYTES)
    assert everything is not None


async def test_a_read_whose_close_was_cancelled_kept_its_board(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    """Bug: the cancellation came before the board was given back, and nobody did that later."""
    await async_client.match(layout, [b"k" * 32])
    memory.faults.delivery = Delivery.HELD
    read = await async_client.read(layout, [b"k" * 32], NOWHERE)
    assert read._progress.board.offset is not None
    closing = asyncio.create_task(read.close())
    await asyncio.sleep(0)
    assert memory.reads[0].is_cancelled
    closing.cancel()
    memory.reads[0].finish()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert read._progress.board.offset is None


async def test_closing_the_client_under_a_call_is_a_miss(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    await async_client.available()
    gate = Gate(memory)
    match = asyncio.create_task(async_client.match(layout, [b"k" * 32]))
    await until(gate, memory, session_pb2.RegisterLayoutRequest)
    await async_client.close()
    assert (await match).chunk_count == 0
    gate.open()


async def test_a_call_on_a_closed_channel_finds_no_daemon(
    async_client: AsyncClient, layout: StateLayout
) -> None:
    keys = [b"k" * 32]
    await async_client.match(layout, keys)
    link = async_client._connection.current()
    assert link is not None
    await async_client.close()
    flow = store_verbs.match(layout, keys, lease_ms=0).flow(link.session)
    with pytest.raises(DaemonAbsentError, match="the session has ended"):
        await link.transport.drive(flow)


async def test_a_cancelled_match_is_cancelled_at_once(
    async_client: AsyncClient, memory: MemoryStore, layout: StateLayout
) -> None:
    await async_client.available()
    gate = Gate(memory)
    match = asyncio.create_task(async_client.match(layout, [b"k" * 32]))
    await until(gate, memory, session_pb2.RegisterLayoutRequest)
    match.cancel()
    with pytest.raises(asyncio.CancelledError):
        await match
    gate.open()
    assert async_client.epoch == 1


async def test_uninterrupted_work_reports_its_own_failure() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await uninterrupted(fail())
