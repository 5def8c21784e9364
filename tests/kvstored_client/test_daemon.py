"""The client against a real daemon process."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch

from kvstored_client import (
    Ack,
    AsyncClient,
    Client,
    LayerState,
    LayoutRefusedError,
    LimitExceededError,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    Read,
    Region,
    RequestInvalidError,
    SequenceConflictError,
    SequenceExistsError,
    SessionRefusedError,
    SliceState,
    StateKind,
    StateLayout,
)
from tests.support.daemon import DaemonProcess

ARENA_BYTES = 32 << 20
CHUNKS = 12
EXAMPLE = Path(__file__).parents[2] / "examples" / "store_tensor.py"
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(
        LayerState(StateKind.KV, 1024),
        LayerState(StateKind.HIDDEN, 512),
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.KV, 1000),
    ),
)
TOKENS = list(range(CHUNKS * LAYOUT.chunk_tokens))
STORED_LAYERS = [0, 1, 3]
SLOW = {"io": {"depth_per_device": 1, "device_bytes_per_s_max": 256 * 1024}}


@pytest.fixture
def client(shared_daemon: DaemonProcess, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A strict client in a namespace of the test's own."""
    with Client(
        shared_daemon.socket_path, arena_bytes=ARENA_BYTES, salt=request.node.name, strict=True
    ) as client:
        yield client


def fill(region: Region, seed: int) -> None:
    region.view[:] = np.random.default_rng(seed).bytes(region.byte_count)


def region_of(client: Client, chunk_count: int = CHUNKS, seed: int = 0) -> Region:
    region = client.allocate(Placement.contiguous_bytes(LAYOUT, chunk_count))
    assert region is not None
    fill(region, seed)
    return region


def payload(region: Region, chunk: int, layer: int, token_count: int = 64) -> bytes:
    start = (chunk * LAYOUT.layer_count + layer) * LAYOUT.layer_stride
    return bytes(region.view[start : start + LAYOUT.slice_bytes(layer, token_count)])


def store(client: Client, ack: Ack = Ack.STAGED) -> tuple[list[bytes], Region]:
    keys = client.prefix_keys(LAYOUT, TOKENS)
    source = region_of(client)
    parents = [b"", *keys]
    chunks = [
        NewChunk(key=key, parent_key=parent, token_count=LAYOUT.chunk_tokens)
        for key, parent in zip(keys, parents, strict=False)
    ]
    report = client.put(LAYOUT, chunks, Placement.contiguous(source, LAYOUT), ack=ack)
    assert report.stored_count == CHUNKS
    return keys, source


@pytest.mark.parametrize("order", Order)
def test_what_was_put_is_read_again(client: Client, order: Order) -> None:
    keys, source = store(client, Ack.DURABLE)
    assert client.match(LAYOUT, keys).chunk_count == CHUNKS
    target = region_of(client, seed=1)
    with client.read(LAYOUT, keys, Placement.contiguous(target, LAYOUT), order=order) as read:
        report = read.wait()
    assert report.finished
    assert report.resident_prefix == CHUNKS
    for chunk in range(CHUNKS):
        for layer in STORED_LAYERS:
            assert payload(target, chunk, layer) == payload(source, chunk, layer)


def test_reads_from_devices_survive_a_kill(tmp_path: Path) -> None:
    with (
        DaemonProcess(tmp_path) as daemon,
        Client(daemon.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=0) as client,
    ):
        keys, source = store(client, Ack.DURABLE)
        old = region_of(client)
        epoch = client.epoch
        daemon.restart()
        assert not old.is_current
        assert client.match(LAYOUT, keys).chunk_count == CHUNKS
        assert client.epoch == epoch + 1
        target = region_of(client, seed=1)
        placement = Placement.contiguous(target, LAYOUT)
        with client.read(LAYOUT, keys, placement, order=Order.LAYER_FIRST) as read:
            assert read.wait_layer(0)
            assert read.wait_for(CHUNKS - 1)
            report = read.wait()
        assert report.resident_prefix == CHUNKS
        assert report.device_bytes > 0
        assert payload(target, 5, 3) == payload(source, 5, 3)
        daemon.kill()
        with client.read(LAYOUT, keys, placement) as read:
            assert read.wait().resident == (False,) * CHUNKS
        assert client.put(LAYOUT, [NewChunk(key=keys[0], token_count=1)], placement).results[
            0
        ].outcome is (PutOutcome.REJECTED)


class SlowRead(NamedTuple):
    """A read of which the daemon's devices bring next to nothing, and where its bytes are from."""

    daemon: DaemonProcess
    read: Read
    source: Region
    target: Region


@pytest.fixture
def slow_read(tmp_path: Path) -> Iterator[SlowRead]:
    """Of chunks that are on the devices only."""
    with (
        DaemonProcess(tmp_path) as daemon,
        Client(daemon.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=0) as client,
    ):
        keys, source = store(client, Ack.DURABLE)
        daemon.configure(SLOW)
        daemon.restart()
        target = region_of(client, seed=1)
        place = Placement.contiguous(target, LAYOUT)
        with client.read(LAYOUT, keys, place, window_bytes=1, timeout_ms=60_000) as read:
            yield SlowRead(daemon, read, source, target)


def test_a_kill_in_the_middle_of_a_read_wakes_everybody(slow_read: SlowRead) -> None:
    read = slow_read.read
    waiters = [threading.Thread(target=read.wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    assert not read.finished
    slow_read.daemon.kill()
    for waiter in waiters:
        waiter.join(60)
        assert not waiter.is_alive()
    report = read.report()
    assert report.finished
    assert False in report.resident
    for chunk, is_resident in enumerate(report.resident):
        if is_resident:
            assert payload(slow_read.target, chunk, 0) == payload(slow_read.source, chunk, 0)
        else:
            assert SliceState.PENDING not in {read.state(chunk, layer) for layer in range(4)}


def test_slices_in_blocks_of_the_engine(client: Client) -> None:
    keys, source = store(client)
    blocks = client.allocate(64 << 14)
    assert blocks is not None
    # Two chunks of four blocks each, scattered; one layer of 16 KiB a block.
    offsets = tuple(index << 14 for index in (7, 0, 5, 2, 1, 6, 3, 4))
    placement = Placement(
        regions=(blocks,), base=blocks.offset, layer_stride=1 << 17, block_offsets=offsets
    )
    with client.read(LAYOUT, keys[:2], placement, layer_count=1) as read:
        assert read.wait().resident_prefix == 2
    for chunk in range(2):
        pieces = [
            bytes(blocks.view[offset : offset + (1 << 14)])
            for offset in offsets[chunk * 4 : chunk * 4 + 4]
        ]
        assert b"".join(pieces) == payload(source, chunk, 0)


def test_a_short_chunk(client: Client) -> None:
    source = region_of(client, 1)
    (key,) = client.prefix_keys(LAYOUT, TOKENS[: LAYOUT.chunk_tokens])
    chunk = NewChunk(key=key, token_count=10)
    placement = Placement.contiguous(source, LAYOUT)
    assert client.put(LAYOUT, [chunk], placement).stored_count == 1
    target = region_of(client, 1, seed=1)
    with client.read(LAYOUT, [key], Placement.contiguous(target, LAYOUT)) as read:
        assert read.wait().resident == (True,)
    assert payload(target, 0, 3, 10) == payload(source, 0, 3, 10)


@pytest.mark.parametrize("how", ["advance", "cancel"])
def test_a_read_stops_where_the_engine_computes(slow_read: SlowRead, how: str) -> None:
    read = slow_read.read
    if how == "advance":
        read.advance(CHUNKS)
    else:
        read.cancel()
    assert read.wait().finished
    states = {read.state(chunk, 0) for chunk in range(CHUNKS)}
    assert SliceState.SKIPPED in states
    assert states <= {SliceState.RESIDENT, SliceState.SKIPPED}


def test_missing_chunks_are_missing(client: Client) -> None:
    keys, _ = store(client)
    lease = client.match(LAYOUT, keys, lease_ms=600_000).lease
    assert lease is not None
    assert lease.chunk_count == CHUNKS
    assert lease.release()
    (absent,) = client.prefix_keys(LAYOUT, TOKENS[1 : 1 + LAYOUT.chunk_tokens])
    assert client.delete([keys[3], absent]) == 1
    assert client.match(LAYOUT, keys).chunk_count == 3
    target = region_of(client)
    with client.read(LAYOUT, keys, Placement.contiguous(target, LAYOUT)) as read:
        assert not read.wait_for(3)
        assert read.wait_for(4)
        report = read.wait()
    assert report.resident_prefix == 3
    assert report.resident.count(False) == 1


def test_other_salts_see_nothing(
    client: Client, shared_daemon: DaemonProcess, request: pytest.FixtureRequest
) -> None:
    store(client)
    salt = f"{request.node.name}-other"
    with Client(shared_daemon.socket_path, arena_bytes=4096, salt=salt) as other:
        keys = other.prefix_keys(LAYOUT, TOKENS)
        assert len(keys) == CHUNKS
        assert other.match(LAYOUT, keys).chunk_count == 0


def test_sequences(client: Client, request: pytest.FixtureRequest) -> None:
    """Names are the daemon's: a salt narrows keys only."""
    keys, _ = store(client)
    talk, branch = f"{request.node.name}-talk", f"{request.node.name}-branch"
    sequences = client.sequences
    assert sequences.create(talk, LAYOUT) is not None
    with pytest.raises(SequenceExistsError):
        sequences.create(talk, LAYOUT)
    assert sequences.append(talk, keys[:4], expected_chunks=0) is not None
    with pytest.raises(SequenceConflictError):
        sequences.append(talk, keys[4:], expected_chunks=0)
    fork = sequences.fork(talk, branch, keep_chunks=3)
    assert fork is not None
    assert fork.keys == tuple(keys[:3])
    front = sequences.truncate_front(branch, 1)
    assert front is not None
    assert (front.keys, front.dropped_chunks) == (tuple(keys[1:3]), 1)
    back = sequences.truncate_back(branch, 1)
    assert back is not None
    assert back.keys == (keys[1],)
    assert sequences.get(branch) == back
    assert [name for name in sequences.list() if name in (talk, branch)] == [branch, talk]
    assert sequences.delete(branch)
    assert sequences.get(branch) is None


def test_refusals_are_typed(client: Client, shared_daemon: DaemonProcess) -> None:
    region = region_of(client, 1)
    outside = Placement(regions=(), base=ARENA_BYTES - 4096, layer_stride=65536)
    chunk = NewChunk(key=b"k" * 32, token_count=1)
    with pytest.raises(RequestInvalidError):
        client.put(LAYOUT, [chunk], outside)
    with pytest.raises(RequestInvalidError):
        client.put(
            LAYOUT,
            [NewChunk(key=bytes(32), token_count=4096)],
            Placement.contiguous(region, LAYOUT),
        )
    with pytest.raises(LimitExceededError):
        client.match(LAYOUT, [b"k" * 32] * 20_000)
    huge = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 1 << 16),) * 64)
    with pytest.raises(LayoutRefusedError):
        client.match(huge, [b"k" * 32])
    assert region.is_current
    with Client(shared_daemon.socket_path, arena_bytes="8TiB", strict=True) as greedy:
        with pytest.raises(SessionRefusedError, match="arena"):
            greedy.allocate(1)
        assert "is larger than server.arena_bytes_max" in greedy.refusal


def test_admin(client: Client) -> None:
    keys, _ = store(client, Ack.DURABLE)
    assert client.admin.stats().chunk_count >= CHUNKS
    assert client.admin.inspect(keys[0].hex()).chunk.key == keys[0]
    assert client.admin.list_chunks(keys[1].hex()[:16]).chunks[0].key == keys[1]


async def test_the_asyncio_facade(
    shared_daemon: DaemonProcess, request: pytest.FixtureRequest
) -> None:
    async with AsyncClient(
        shared_daemon.socket_path, arena_bytes=ARENA_BYTES, salt=request.node.name, strict=True
    ) as client:
        keys = await client.prefix_keys(LAYOUT, TOKENS)
        source = await client.allocate(Placement.contiguous_bytes(LAYOUT, CHUNKS))
        target = await client.allocate(Placement.contiguous_bytes(LAYOUT, CHUNKS))
        assert source is not None
        assert target is not None
        fill(source, 3)
        chunks = [NewChunk(key=key, token_count=64) for key in keys]
        await client.put(LAYOUT, chunks, Placement.contiguous(source, LAYOUT), ack=Ack.DURABLE)
        async with await client.read(LAYOUT, keys, Placement.contiguous(target, LAYOUT)) as read:
            assert await read.wait_for(0)
            assert await read.wait_layer(3)
            assert (await read.wait()).resident_prefix == CHUNKS
        assert target.tensor(torch.uint8, (65536,)).equal(source.tensor(torch.uint8, (65536,)))


def test_the_example_runs_as_printed(shared_daemon: DaemonProcess) -> None:
    result = subprocess.run(
        [sys.executable, EXAMPLE, shared_daemon.socket_path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("fetched 2 chunks, equal: True\n")
    assert len(EXAMPLE.read_text().splitlines()) < 60
