"""All sessions: limits, tokens, leases."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.resident import AbandonedError
from kvstored.server import session_table as table_module
from kvstored.server.access import Grant
from kvstored.server.errors import RefusedError
from kvstored.server.held.leases import Lease
from kvstored.server.session import Session
from kvstored.server.session_table import SessionLimits, SessionTable
from kvstored.server.waits import SLICE_ITEMS
from kvstored.store.read.read_stream import ReadStream
from kvstored_contract.reasons import Reason
from tests.kvstored.server.fake_store import FakeStream
from tests.kvstored.server.session_tables import session_table
from tests.support.waiting import PATIENCE_S, until

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
async def table(unpinned: Unpinned) -> AsyncIterator[SessionTable]:
    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=12288, sessions_max=2)
    table = session_table(limits, unpin=unpinned)
    yield table
    await table.shut_down()


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
    session.arena_use.add_read(cast("ReadStream", stream))
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


@pytest.mark.parametrize("is_late", [True, False])
async def test_a_read_in_a_lane_without_slots_was_never_late(is_late: bool) -> None:
    """Bug: only a lane that had a slot looked at deadlines, and its drive answered nothing."""
    given_up: list[object] = []
    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=1)
    table = session_table(limits, give_up=given_up.append)
    stream = FakeStream()
    stream.is_late = is_late
    (await opened(table)).arena_use.add_read(cast("ReadStream", stream))
    await table.tick(0.0)
    assert given_up == ([stream] if is_late else [])
    stream.finish()
    await table.tick(0.0)
    assert len(given_up) == is_late
    await table.shut_down()


async def test_reads_that_cannot_be_given_up_ended_the_daemon(
    caplog: pytest.LogCaptureFixture, unpinned: Unpinned
) -> None:
    """Bug: leases stopped to end, and with their task the server."""

    def fail(_: ReadStream) -> None:
        raise RuntimeError("a fault")

    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=1)
    table = session_table(limits, unpin=unpinned, give_up=fail)
    stream = FakeStream()
    stream.is_late = True
    session = await opened(table)
    session.arena_use.add_read(cast("ReadStream", stream))
    session.add_lease(Lease(chunks=(CHUNK,), expires_at=2.0))
    await table.tick(1.0)
    assert "a fault" in caplog.text
    await table.tick(3.0)
    assert unpinned.chunks[CHUNK] == 1
    stream.finish()
    await table.shut_down()


class SlowArena:
    """An arena that is being made for as long as somebody wants it, or until ``is_made``."""

    def __init__(self) -> None:
        self.is_begun = threading.Event()
        self.is_made = threading.Event()
        self.is_abandoned = False
        self.is_closed = False

    def __call__(
        self, _: int, *, huge_pages: bool, is_abandoned: Callable[[], bool]
    ) -> "SlowArena":
        assert not huge_pages
        self.is_begun.set()
        while not self.is_made.wait(0.001):
            if is_abandoned():
                self.is_abandoned = True
                raise AbandonedError
        return self

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("is_late", [False, True])
async def test_half_made_arena_keeps_memory_from_the_next_attempt(
    table: SessionTable, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """Bug: it was made to its end for nobody, and counted; its client was refused meanwhile."""
    slow = SlowArena()
    with monkeypatch.context() as patch:
        patch.setattr(table_module, "Arena", slow)
        opening = asyncio.create_task(opened(table, 8192))
        await until(slow.is_begun.is_set)
        assert await refused(table, 8192) is Reason.LIMIT_EXCEEDED
        if is_late:
            slow.is_made.set()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: table.usage().arenas_used_bytes == 0)
    assert slow.is_abandoned or slow.is_closed
    assert table.session_count == 0
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
    table = session_table(limits, unpin=unpinned, end=broken)
    session = await opened(table, 8192)
    with pytest.raises(KeyError):
        await table.close(session)
    assert table.usage().arenas_used_bytes == 0
    await opened(table, 8192)
    await table.shut_down()


async def test_a_session_whose_pins_cannot_be_returned_kept_its_memory() -> None:
    """Bug: the limits counted its arena for ever."""

    def fail(_: Iterable[ChunkId]) -> None:
        raise RuntimeError("can't start new thread")

    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=2)
    table = session_table(limits, unpin=fail)
    session = await opened(table, 8192)
    session.add_lease(Lease(chunks=(CHUNK,), expires_at=1e18))
    with pytest.raises(RuntimeError, match="new thread"):
        await table.close(session)
    session = await opened(table, 8192)
    await table.close(session)
    await table.shut_down()


async def test_an_end_that_takes_long_holds_nobody_up(unpinned: Unpinned) -> None:
    """Bug: it had one of the few threads that arenas are made on."""
    may_end = threading.Event()
    ended: list[int] = []

    def slow(session_id: int) -> None:
        assert may_end.wait(PATIENCE_S)
        ended.append(session_id)

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=16384, sessions_max=3)
    table = session_table(limits, unpin=unpinned, end=slow)
    first, second = await opened(table), await opened(table)
    closing = asyncio.gather(table.close(first), table.close(second))
    await until(lambda: table.session_count == 0)
    async with asyncio.timeout(PATIENCE_S / 2):
        await opened(table)
    assert not ended
    may_end.set()
    await closing
    assert sorted(ended) == [1, 2]
    await table.shut_down()


async def test_leases_end_by_themselves(table: SessionTable, unpinned: Unpinned) -> None:
    session = await opened(table)
    session.leases.add(Lease(chunks=(CHUNK,), expires_at=10))
    await table.tick(9)
    assert unpinned.chunks[CHUNK] == 0
    await table.tick(10)
    await table.tick(11)
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


@pytest.fixture
def table_threads() -> Callable[[], list[str]]:
    """The threads that tables of this test have."""
    before = set(threading.enumerate())

    def now() -> list[str]:
        names = [thread.name for thread in set(threading.enumerate()) - before]
        return [name for name in names if name.startswith(("kvstored-end", "kvstored-unpin"))]

    return now


async def test_a_stop_leaves_no_thread(
    table: SessionTable, unpinned: Unpinned, table_threads: Callable[[], list[str]]
) -> None:
    """*Bug:* the threads that end sessions and return pins stayed, whatever they did."""
    session = await opened(table)
    session.leases.add(Lease(chunks=(CHUNK,) * (SLICE_ITEMS + 1), expires_at=1e9))
    await table.close_all()
    assert len(table_threads()) == 2
    await table.shut_down()
    assert table_threads() == []
    assert unpinned.chunks[CHUNK] == SLICE_ITEMS + 1


@pytest.fixture
def may_end() -> Iterator[threading.Event]:
    """What a thread waits for; set in the end, whatever became of the test."""
    may_end = threading.Event()
    yield may_end
    may_end.set()


async def test_a_stop_waits_for_a_session_that_was_being_ended(
    unpinned: Unpinned, may_end: threading.Event
) -> None:
    """*Bug:* the stop cut its client's connection off, and nobody waited for its end any more."""

    def slow(_: int) -> None:
        assert may_end.wait(PATIENCE_S)

    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=1)
    table = session_table(limits, unpin=unpinned, end=slow)
    closing = asyncio.create_task(table.close(await opened(table)))
    await until(lambda: table.session_count == 0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await table.close_all()
    stopping = asyncio.create_task(table.shut_down())
    await asyncio.wait([stopping], timeout=0.05)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert table.usage().arenas_used_bytes == 0


async def test_a_stop_waits_for_pins_on_their_way_back(
    may_end: threading.Event, table_threads: Callable[[], list[str]]
) -> None:
    """*Bug:* a large lease that ended just then was returned in part, or to a closed store."""
    unpinned = Unpinned()

    def slow(chunks: Iterable[ChunkId]) -> None:
        assert may_end.wait(PATIENCE_S)
        unpinned(chunks)

    limits = SessionLimits(arena_bytes_max=8192, arenas_bytes_max=8192, sessions_max=1)
    table = session_table(limits, unpin=slow)
    lease = Lease(chunks=(CHUNK,) * (2 * SLICE_ITEMS), expires_at=0)
    returning = asyncio.create_task(table.give_back([lease]))
    await until(lambda: bool(table_threads()))
    returning.cancel()
    await asyncio.gather(returning, return_exceptions=True)
    stopping = asyncio.create_task(table.shut_down())
    await asyncio.wait([stopping], timeout=0.05)
    assert not stopping.done()
    may_end.set()
    await stopping
    assert unpinned.chunks[CHUNK] == 2 * SLICE_ITEMS
    assert table_threads() == []
