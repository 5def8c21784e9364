"""One client that occupies as many threads as it can: another's calls get one all the same.

A put waits for room while DRAM is full of chunks that no device takes, and a change of a sequence
for a commit that no device ends: both hold a thread of the daemon meanwhile. Devices with a gate
keep them so for as long as the test wants.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest

from kvstored.io.device import Device
from kvstored.io.passing import PassingDevice
from kvstored.server.access import AccessRules
from kvstored.server.session import CALLS_PER_SESSION_MAX
from kvstored.server.session_table import SessionLimits
from kvstored.server.store_servicer import INLINE_CHUNKS_MAX
from kvstored.server.thread_share import THREADS_PER_SESSION
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import (
    common_pb2,
    sequence_pb2,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
)
from tests.kvstored.server.caller import told_reason
from tests.kvstored.server.served import Peer, Served
from tests.support.devices import GatedDevice, Wrapping
from tests.support.stores import LAYOUT, MIB, StoreUnderTest, key, open_store
from tests.support.waiting import PATIENCE_S, until

SESSIONS_MAX = 4
GREEDY_CALLS = 2 * THREADS_PER_SESSION * SESSIONS_MAX
"""More than all threads of a pool."""
CHUNKS_PER_PUT = 4
CHUNK_BYTES = LAYOUT.layer_count * LAYOUT.layer_stride
ARENA_BYTES = CHUNKS_PER_PUT * CHUNK_BYTES
DEADLINE_MS = 500_000
ANSWER_S = PATIENCE_S / 4
"""What an answer may take on a busy machine; the gates stay closed for longer."""

Gated = TypeVar("Gated", GatedDevice, "FlushGatedDevice")


class FlushGatedDevice(PassingDevice):
    """Flushes wait until the gate is open; the start of each is announced."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.started = threading.Event()

    def flush(self) -> None:
        self.started.set()
        self.gate.wait(PATIENCE_S)
        super().flush()


@asynccontextmanager
async def serving(folder: Path, opened: StoreUnderTest) -> AsyncIterator[Served]:
    """A server over a real store."""
    served = Served(
        folder,
        rules=AccessRules(daemon_uid=os.getuid()),
        limits=SessionLimits(
            arena_bytes_max=ARENA_BYTES,
            arenas_bytes_max=SESSIONS_MAX * ARENA_BYTES,
            sessions_max=SESSIONS_MAX,
        ),
        backing=opened.store,
    )
    await served.started()
    try:
        yield served
    finally:
        served.stop.set()
        await served.task


@asynccontextmanager
async def client(served: Served) -> AsyncIterator[Peer]:
    """A session that knows the layout."""
    async with served.peer(ARENA_BYTES) as peer:
        await session_pb2_grpc.SessionServiceStub(peer.channel).RegisterLayout(
            session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
        )
        yield peer


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A store, a server over it, and two clients. ``numbers`` are those of new chunks."""

    opened: StoreUnderTest
    served: Served
    greedy: Peer
    other: Peer
    numbers: "count[int]" = field(default_factory=lambda: count(1))

    async def until_full(self) -> None:
        """Returns when DRAM has no room for another chunk."""
        await until(
            lambda: (
                self.opened.put([next(self.numbers), next(self.numbers)], timeout_s=0)[1].reason
                is Reason.DRAM_FULL
            )
        )

    async def until_waiting(self, calls: Sequence["asyncio.Task[Any]"]) -> None:
        """Returns when the daemon has all of the calls that are not answered, and no other."""
        await until(lambda: self.served.call_count == sum(not call.done() for call in calls))


@asynccontextmanager
async def staged(folder: Path, devices: "Wrapping[Gated]") -> AsyncIterator[Scene]:
    """The scene with every gate closed; in the end they are open."""
    # As many frames as two slabs have extents: none needs a header behind held writes.
    with open_store(folder, wrap=devices, dram_bytes=MIB) as opened:
        async with (
            serving(folder, opened) as served,
            client(served) as greedy,
            client(served) as other,
        ):
            try:
                yield Scene(opened=opened, served=served, greedy=greedy, other=other)
            finally:
                set_gates(devices, is_open=True)


async def ping(peer: Peer) -> None:
    stub = session_pb2_grpc.SessionServiceStub(peer.channel)
    await stub.Ping(session_pb2.PingRequest(), metadata=peer.metadata, timeout=ANSWER_S)


async def create_sequence(peer: Peer, name: str) -> None:
    request = sequence_pb2.CreateSequenceRequest(name=name, layout_id=LAYOUT.layout_id)
    await sequence_pb2_grpc.SequenceServiceStub(peer.channel).Create(
        request, metadata=peer.metadata
    )


async def put(
    peer: Peer,
    numbers: Iterable[int],
    *,
    ack: store_pb2.Ack.ValueType = store_pb2.ACK_STAGED,
    deadline_ms: int = DEADLINE_MS,
    timeout_s: float | None = None,
) -> list[PutOutcome]:
    request = store_pb2.PutRequest(
        layout_id=LAYOUT.layout_id,
        chunks=[
            store_pb2.PutChunk(key=key(number), token_count=LAYOUT.chunk_tokens, stripe=number)
            for number in numbers
        ],
        source=common_pb2.Placement(layer_stride=LAYOUT.layer_stride, chunk_stride=CHUNK_BYTES),
        ack=ack,
        deadline_ms=deadline_ms,
    )
    reply = await store_pb2_grpc.StoreServiceStub(peer.channel).Put(
        request, metadata=peer.metadata, timeout=timeout_s
    )
    return [PutOutcome(result.outcome) for result in reply.results]


def greedy_puts(scene: Scene) -> list[asyncio.Task[list[PutOutcome]]]:
    """More puts at once than there are threads."""
    return [
        asyncio.create_task(put(scene.greedy, [next(scene.numbers) for _ in range(CHUNKS_PER_PUT)]))
        for _ in range(GREEDY_CALLS)
    ]


def set_gates(devices: Iterable[Gated], *, is_open: bool) -> None:
    for device in devices:
        if is_open:
            device.gate.set()
        else:
            device.gate.clear()


async def store_then_close_gates(scene: Scene, devices: "Wrapping[Gated]") -> None:
    """Chunk 0 is on the devices, which take nothing more."""
    set_gates(devices, is_open=True)
    await put(scene.other, [0], ack=store_pb2.ACK_DURABLE)
    set_gates(devices, is_open=False)


async def check_other_puts(scene: Scene) -> None:
    """Both kinds of put that need nothing of the devices are answered."""
    assert await put(scene.other, [0], timeout_s=ANSWER_S) == [PutOutcome.EXISTED]
    fresh = await put(scene.other, [next(scene.numbers)], deadline_ms=0, timeout_s=ANSWER_S)
    assert fresh == [PutOutcome.REJECTED]


async def test_puts_that_wait_for_room_leave_threads_to_others(in_memory: Path) -> None:
    """Fails when ``ThreadShare`` gives one session all threads (seen: DEADLINE_EXCEEDED)."""
    devices = Wrapping(GatedDevice)
    async with staged(in_memory, devices) as scene:
        await store_then_close_gates(scene, devices)
        calls = greedy_puts(scene)
        await scene.until_full()
        await scene.until_waiting(calls)
        await check_other_puts(scene)
        assert not all(call.done() for call in calls)
        set_gates(devices, is_open=True)
        # Those that had no thread were not forgotten.
        assert {outcome for call in calls for outcome in await call} == {PutOutcome.STORED}


async def test_puts_that_are_given_up_keep_their_threads_in_the_count(in_memory: Path) -> None:
    """Fails when ``ThreadShare`` counts calls instead of threads (seen: DEADLINE_EXCEEDED)."""
    devices = Wrapping(GatedDevice)
    async with staged(in_memory, devices) as scene:
        await store_then_close_gates(scene, devices)
        for _ in range(2 * SESSIONS_MAX):
            calls = greedy_puts(scene)
            await scene.until_full()
            await scene.until_waiting(calls)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await scene.until_waiting([])
        await check_other_puts(scene)


async def test_changes_of_sequences_leave_threads_to_others(in_memory: Path) -> None:
    """Fails when ``ThreadShare`` gives one session all threads (seen: DEADLINE_EXCEEDED)."""
    devices = Wrapping(FlushGatedDevice)
    async with staged(in_memory, devices) as scene:
        durable = asyncio.create_task(put(scene.greedy, [0], ack=store_pb2.ACK_DURABLE))
        await until(lambda: any(device.started.is_set() for device in devices))
        changes = [
            asyncio.create_task(create_sequence(scene.greedy, f"sequence {number}"))
            for number in range(GREEDY_CALLS)
        ]
        await scene.until_waiting([durable, *changes])
        reply = await store_pb2_grpc.StoreServiceStub(scene.other.channel).Match(
            store_pb2.MatchRequest(
                layout_id=LAYOUT.layout_id,
                keys=[key(number) for number in range(1, INLINE_CHUNKS_MAX + 2)],
            ),
            metadata=scene.other.metadata,
            timeout=ANSWER_S,
        )
        assert reply.matched_chunks == 0
        assert not any(change.done() for change in changes)
        set_gates(devices, is_open=True)
        await asyncio.gather(durable, *changes)


async def test_calls_of_one_session_are_bounded(in_memory: Path) -> None:
    """Fails when ``Session.call`` lets every call in (seen: none is refused).

    The server as a whole takes a limited number of calls: without this bound the others
    would be refused instead.
    """
    devices = Wrapping(GatedDevice)
    async with staged(in_memory, devices) as scene:
        await scene.until_full()
        calls = [
            asyncio.create_task(put(scene.greedy, [next(scene.numbers)]))
            for _ in range(CALLS_PER_SESSION_MAX)
        ]
        await scene.until_waiting(calls)
        assert scene.served.call_count == CALLS_PER_SESSION_MAX
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ping(scene.greedy)
        assert told_reason(refused.value) == Reason.LIMIT_EXCEEDED.name
        await ping(scene.other)
        set_gates(devices, is_open=True)
        await asyncio.gather(*calls)
        await ping(scene.greedy)
