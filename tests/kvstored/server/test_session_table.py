"""All sessions: limits, tokens, leases."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import cast

import pytest

from kvstored.format.identity import ChunkId
from kvstored.server import session_table as table_module
from kvstored.server.access import Grant
from kvstored.server.errors import RefusedError
from kvstored.server.leases import Lease
from kvstored.server.session import Session
from kvstored.server.session_table import SessionLimits, SessionTable
from kvstored.store.read_stream import ReadStream
from kvstored_contract.reasons import Reason
from tests.kvstored.server.fake_store import FakeStream

GRANT = Grant(namespace="n", admin=False, huge_pages=False)
CHUNK = ChunkId(bytes(16), bytes(32))


class Unpinned:
    """Counts what was unpinned."""

    def __init__(self) -> None:
        self.chunks: Counter[ChunkId] = Counter()

    def __call__(self, chunks: Iterable[ChunkId]) -> None:
        self.chunks.update(chunks)


@pytest.fixture
def unpinned() -> Unpinned:
    return Unpinned()


@pytest.fixture
def table(unpinned: Unpinned) -> SessionTable:
    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=12288, sessions_max=2)
    return SessionTable(limits, unpin=unpinned, cancel=lambda _: None, end=lambda _: None)


async def opened(table: SessionTable, arena_bytes: int = 4096) -> Session:
    return await table.open(GRANT, client_name="c", arena_bytes=arena_bytes)


async def refused(table: SessionTable, arena_bytes: int = 4096) -> Reason:
    with pytest.raises(RefusedError) as info:
        await opened(table, arena_bytes)
    return info.value.reason


async def test_a_token_works_until_the_session_is_closed(table: SessionTable) -> None:
    session = await opened(table)
    token = session.identity.token
    assert table.find(token) is session
    await table.close(session)
    with pytest.raises(RefusedError) as info:
        table.find(token)
    assert info.value.reason is Reason.TOKEN_UNKNOWN
    await table.close(session)


async def test_limits(table: SessionTable) -> None:
    assert await refused(table, 8193) is Reason.LIMIT_EXCEEDED
    first = await opened(table, 8192)
    assert await refused(table, 8192) is Reason.LIMIT_EXCEEDED
    await opened(table, 4096)
    assert await refused(table) is Reason.LIMIT_EXCEEDED
    await table.close(first)
    await opened(table, 8192)
    assert table.session_count == 2


async def test_memory_counts_until_it_is_free(table: SessionTable) -> None:
    session = await opened(table, 8192)
    stream = FakeStream()
    session.add_read(cast("ReadStream", stream))
    closing = asyncio.create_task(table.close(session))
    await asyncio.sleep(0)
    assert table.session_count == 0
    assert await refused(table, 8192) is Reason.LIMIT_EXCEEDED
    stream.finish()
    await closing
    await opened(table, 8192)


async def test_lack_of_memory_is_a_refusal(
    table: SessionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(_: int, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(table_module, "Arena", no_memory)
        assert await refused(table, 8192) is Reason.LIMIT_EXCEEDED
    await opened(table, 8192)


async def test_other_faults_of_an_arena_are_not_refusals(
    table: SessionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int, **__: object) -> None:
        raise KeyError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(table_module, "Arena", broken)
        with pytest.raises(KeyError):
            await opened(table, 8192)
    await opened(table, 8192)


async def test_the_end_of_a_session_returns_its_leases(
    table: SessionTable, unpinned: Unpinned
) -> None:
    session = await opened(table)
    session.leases.add(Lease(chunks=(CHUNK, CHUNK), expires_at=1e9))
    await table.close(session)
    assert unpinned.chunks[CHUNK] == 2


async def test_a_session_whose_end_fails_gives_its_memory_back(unpinned: Unpinned) -> None:
    """Bug: the session counted for ever, and its arena stayed mapped."""

    def broken(_: int) -> None:
        raise KeyError("bug")

    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=1)
    table = SessionTable(limits, unpin=unpinned, cancel=lambda _: None, end=broken)
    session = await opened(table, 8192)
    with pytest.raises(KeyError):
        await table.close(session)
    assert table.usage().arenas_used_bytes == 0
    await opened(table, 8192)


async def test_leases_end_by_themselves(table: SessionTable, unpinned: Unpinned) -> None:
    session = await opened(table)
    session.leases.add(Lease(chunks=(CHUNK,), expires_at=10))
    table.tick(9)
    assert unpinned.chunks[CHUNK] == 0
    table.tick(10)
    table.tick(11)
    assert unpinned.chunks[CHUNK] == 1


async def test_draining(table: SessionTable) -> None:
    session = await opened(table)
    table.drain()
    assert await refused(table) is Reason.DRAINING
    with pytest.raises(RefusedError) as info:
        table.find(session.identity.token)
    assert info.value.reason is Reason.DRAINING
    await table.close_all()
    assert table.session_count == 0
