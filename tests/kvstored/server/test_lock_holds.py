"""A call of 16,384 chunks holds each lock of the store for a few of them at a time.

Fails when ``Turnstile.parts``, or one of the loops like it, hands out everything as one part.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvstored.format.identity import ChunkId
from kvstored.server.access import AccessRules
from kvstored.server.session_table import SessionLimits
from kvstored.store.read.placement import Placement
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.write import chunk_store
from kvstored.tiers.chunks import dram, nvme_room
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.requests import NewChunk, PutRequest
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import session_pb2, session_pb2_grpc, store_pb2, store_pb2_grpc
from tests.kvstored.server.served import ARENA_BYTES, Peer, Served
from tests.support.stores import LAYOUT, MIB, NAMESPACE, StoreUnderTest, key, new_board, open_store
from tests.support.waiting import PATIENCE_S, until

AT_ONCE_MAX = 256
"""Chunks for which any lock is held."""
STORED = list(range(2 * AT_ONCE_MAX + 9))
MANY = list(range(CHUNKS_PER_CALL_MAX))
"""The first of them are stored."""


class CountedLock:
    """A lock that notes for how many chunks something is done under one hold of it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._count = 0
        self.counts: list[int] = []

    def note(self, count: int) -> None:
        assert self.is_owned(), "nobody holds the lock"
        self._count += count

    def acquire(self, *arguments: Any, **named: Any) -> bool:
        if not self._lock.acquire(*arguments, **named):
            return False
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self.counts.append(self._count)
            self._count = 0
        self._lock.release()

    def is_owned(self) -> bool:
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    # A condition asks for these.
    _is_owned = is_owned

    def _release_save(self) -> int:
        depth, self._depth = self._depth, 1
        for _ in range(depth - 1):
            self._lock.release()
        self.release()
        return depth

    def _acquire_restore(self, depth: int) -> None:
        for _ in range(depth):
            self.acquire()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class CountedPins(Counter[ChunkId]):
    """Pins that tell of each that is counted."""

    def __init__(self, note: Callable[[int], None]) -> None:
        super().__init__()
        self._note = note

    def update(  # type: ignore[override]
        self, chunks: Iterable[ChunkId] | None = None, /, **_: int
    ) -> None:
        if chunks is None:
            return
        named = list(chunks)
        self._note(len(named))
        for chunk in named:
            super().__setitem__(chunk, self[chunk] + 1)

    def __setitem__(self, chunk: ChunkId, count: int) -> None:
        self._note(1)
        super().__setitem__(chunk, count)


class Locks:
    """Those of the table of chunks, of DRAM, and of pins, writes and deletions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table, self.dram, self.pins = CountedLock(), CountedLock(), CountedLock()
        # The room has one for its evictions after that of the table.
        table_first = iter([self.table])
        locks = SimpleNamespace(Lock=lambda: next(table_first, None) or threading.Lock())
        monkeypatch.setattr(nvme_room, "threading", locks)
        monkeypatch.setattr(chunk_store, "threading", SimpleNamespace(RLock=lambda: self.pins))
        conditions = SimpleNamespace(Condition=lambda: threading.Condition(self.dram))  # type: ignore[arg-type]
        monkeypatch.setattr(dram, "threading", conditions)
        self._spy(monkeypatch)

    def _spy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows, contains = ChunkTable.rows, DramTier.contains

        def counted_rows(table: ChunkTable, identities: list[bytes]) -> list[int]:
            self.table.note(len(identities))
            return rows(table, identities)

        def counted_contains(tier: DramTier, chunk: ChunkId) -> bool:
            # A match looks without the lock.
            if self.dram.is_owned():
                self.dram.note(1)
            return contains(tier, chunk)

        monkeypatch.setattr(ChunkTable, "rows", counted_rows)
        monkeypatch.setattr(DramTier, "contains", counted_contains)

    def forget(self) -> None:
        for lock in (self.table, self.dram, self.pins):
            lock.counts.clear()


@asynccontextmanager
async def client(folder: Path, opened: StoreUnderTest) -> AsyncIterator[Peer]:
    """A session at a server over the store, which knows the layout."""
    served = Served(
        folder,
        rules=AccessRules(daemon_uid=os.getuid()),
        limits=SessionLimits(
            arena_bytes_max=ARENA_BYTES, arenas_bytes_max=ARENA_BYTES, sessions_max=1
        ),
        backing=opened.store,
    )
    await served.started()
    try:
        async with served.peer() as peer:
            await session_pb2_grpc.SessionServiceStub(peer.channel).RegisterLayout(
                session_pb2.RegisterLayoutRequest(layout=LAYOUT.to_proto()), metadata=peer.metadata
            )
            yield peer
    finally:
        served.stop.set()
        await served.task


SAME_PLACE = Placement(base=0, layer_stride=LAYOUT.layer_stride, chunk_stride=0)
"""Of the bytes of all chunks."""


def put(opened: StoreUnderTest) -> None:
    opened.fill(1)
    tickets = opened.store.put_path.put(
        PutRequest(
            namespace_id=NAMESPACE,
            layout=LAYOUT,
            chunks=tuple(
                NewChunk(key(number), b"", LAYOUT.chunk_tokens, number) for number in STORED
            ),
            source=opened.arena,
            placement=SAME_PLACE,
            deadline=time.monotonic() + PATIENCE_S,
        )
    )
    for ticket in tickets:
        assert ticket.durable is not None
        ticket.durable.result(PATIENCE_S)


async def test_a_large_call_held_the_locks_of_the_store_for_all_of_its_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a read pinned all of its chunks at once, and gave all pins back at once."""
    locks = Locks(monkeypatch)
    with open_store(tmp_path, slabs_per_device=16, dram_bytes=2 * MIB) as opened:
        pins = CountedPins(locks.pins.note)
        monkeypatch.setattr(opened.store._store.pins, "_pins", pins)
        put(opened)
        async with client(tmp_path, opened) as peer:
            store = store_pb2_grpc.StoreServiceStub(peer.channel)
            named: dict[str, Any] = {"layout_id": LAYOUT.layout_id, "keys": list(map(key, MANY))}
            limits: dict[str, Any] = {"metadata": peer.metadata, "timeout": PATIENCE_S}

            async def pin() -> None:
                request = store_pb2.PinRequest(**named, lease_ms=600_000)
                reply = await store.Pin(request, **limits)
                assert sum(reply.is_pinned) == len(STORED)
                await store.Unpin(store_pb2.UnpinRequest(lease_id=reply.lease_id), **limits)
                await until(lambda: not pins)

            async def match() -> None:
                reply = await store.Match(store_pb2.MatchRequest(**named), **limits)
                assert reply.matched_chunks == len(STORED)

            async def read() -> None:
                board = new_board(len(MANY))
                stream = opened.read(MANY, base=0, board=board, placement=SAME_PLACE)
                assert stream.wait(PATIENCE_S)
                await until(lambda: not pins)

            for call in (pin, match, read):
                locks.forget()
                await call()
                counts = locks.table.counts + locks.dram.counts + locks.pins.counts
                assert max(counts) <= AT_ONCE_MAX, call.__name__
                assert sum(counts) >= len(STORED), call.__name__
