"""The asyncio facade: the same flows, its own transport and waits."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from kvstored_client import (
    AsyncClient,
    DaemonAbsentError,
    NewChunk,
    Placement,
    Region,
    SliceState,
    StateLayout,
    store_verbs,
)
from kvstored_client.aio_transport import uninterrupted
from kvstored_contract.board import BoardWord
from kvstored_contract.reasons import Reason
from tests.kvstored_client.conftest import PAYLOAD_BYTES
from tests.kvstored_client.fake_daemon import FakeDaemon

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


async def until(daemon: FakeDaemon, request_name: str) -> None:
    """Returns when the daemon is working on such a request."""
    while not any(type(request).__name__ == request_name for request in daemon.requests):
        await asyncio.to_thread(daemon.entered.acquire, timeout=30)


async def test_every_verb(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
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
    assert not daemon.leases
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
    daemon.stored[b"q" * 32] = []
    assert (await client.admin.inspect("71")).chunk.key == b"q" * 32


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


async def test_a_refusal_is_a_miss(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    daemon.refusals["PutRequest"] = Reason.DRAM_FULL
    chunk = NewChunk(key=b"k" * 32, token_count=16)
    report = await async_client.put(layout, [chunk], NOWHERE)
    assert report.results[0].reason is Reason.DRAM_FULL


async def test_waits_follow_the_board_and_the_death(tmp_path: Path, layout: StateLayout) -> None:
    daemon = FakeDaemon(tmp_path)
    client = AsyncClient(daemon.socket_path, arena_bytes=1 << 20, reconnect_interval_s=0)
    keys, region = await store(client, layout)
    daemon.holds_reads = True
    read = await client.read(layout, keys, Placement.contiguous(region, layout))
    held = daemon.held_reads[0]
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

    restarted = FakeDaemon(tmp_path, epoch=2)
    restarted.stored = daemon.stored
    assert (await client.match(layout, keys)).chunk_count == 2
    assert client.epoch == 2
    await client.close()
    assert not await client.available()
    await asyncio.to_thread(restarted.stop)


async def test_a_cancelled_put_is_over_when_the_cancellation_arrives(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    await async_client.match(layout, [b"k" * 32])
    daemon.gate.clear()
    chunk = NewChunk(key=b"k" * 32, token_count=16)
    put = asyncio.create_task(async_client.put(layout, [chunk], NOWHERE))
    await until(daemon, "PutRequest")
    put.cancel()
    done, _ = await asyncio.wait([put], timeout=0.05)
    assert not done
    daemon.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert chunk.key in daemon.stored
    assert async_client.epoch == 1


async def test_a_read_whose_start_is_cancelled_is_closed(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    await async_client.match(layout, [b"k" * 32])
    daemon.holds_reads = True
    daemon.gate.clear()
    read = asyncio.create_task(async_client.read(layout, [b"k" * 32], NOWHERE))
    await until(daemon, "ReadRequest")
    read.cancel()
    daemon.gate.set()
    while not daemon.held_reads or not daemon.held_reads[0].board.words[BoardWord.CANCEL]:
        assert not read.done()
        await asyncio.sleep(0)
    daemon.held_reads[0].finish()
    with pytest.raises(asyncio.CancelledError):
        await read
    everything = await async_client.allocate(PAYLOAD_BYTES)
    assert everything is not None


async def test_closing_the_client_under_a_call_is_a_miss(
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    await async_client.available()
    daemon.gate.clear()
    match = asyncio.create_task(async_client.match(layout, [b"k" * 32]))
    await until(daemon, "RegisterLayoutRequest")
    await async_client.close()
    assert (await match).chunk_count == 0
    daemon.gate.set()


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
    async_client: AsyncClient, daemon: FakeDaemon, layout: StateLayout
) -> None:
    await async_client.available()
    daemon.gate.clear()
    match = asyncio.create_task(async_client.match(layout, [b"k" * 32]))
    await until(daemon, "RegisterLayoutRequest")
    match.cancel()
    with pytest.raises(asyncio.CancelledError):
        await match
    daemon.gate.set()
    assert async_client.epoch == 1


async def test_uninterrupted_work_reports_its_own_failure() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await uninterrupted(fail())
