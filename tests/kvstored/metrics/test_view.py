"""A view is asked on another event loop than the daemon's."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kvstored.metrics import view as module
from kvstored.metrics.snapshot import Snapshot
from kvstored.metrics.view import DaemonView, Phase, SilentError
from tests.kvstored.metrics.snapshots import snapshot_of
from tests.support.waiting import SOON_S

SNAPSHOT = snapshot_of()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The daemon's, on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def look() -> Snapshot:
    return SNAPSHOT


def begin(view: DaemonView, loop: asyncio.AbstractEventLoop) -> None:
    async def serving() -> None:
        view.begin_serving(look)

    asyncio.run_coroutine_threadsafe(serving(), loop).result()


async def test_only_a_daemon_that_serves_is_looked_at(loop: asyncio.AbstractEventLoop) -> None:
    view = DaemonView()
    assert (view.phase, await view.snapshot()) == (Phase.RECOVERING, None)
    begin(view, loop)
    assert (view.phase, await view.snapshot()) == (Phase.SERVING, SNAPSHOT)
    view.begin_draining()
    assert (view.phase, await view.snapshot()) == (Phase.DRAINING, None)


async def test_a_loop_that_hangs(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_TIMEOUT_S", 0.05)
    view, released = DaemonView(), threading.Event()
    begin(view, loop)
    loop.call_soon_threadsafe(released.wait)
    try:
        with pytest.raises(SilentError):
            await view.snapshot()
    finally:
        released.set()


async def test_arenas_in_the_making_delayed_the_answer_whether_the_daemon_lives(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it looked at the store for that, on a thread of those that make arenas, all busy."""
    monkeypatch.setattr(asyncio, "to_thread", pytest.fail)
    view = DaemonView()

    async def looks_for_ever() -> Snapshot:
        await asyncio.Event().wait()
        raise AssertionError

    async def serving() -> None:
        view.begin_serving(looks_for_ever)

    asyncio.run_coroutine_threadsafe(serving(), loop).result()
    # As long as a slow machine takes to run the other loop's thread.
    monkeypatch.setattr(module, "SNAPSHOT_TIMEOUT_S", SOON_S)
    await view.check_alive()
    monkeypatch.setattr(module, "SNAPSHOT_TIMEOUT_S", 0.05)
    with pytest.raises(SilentError):
        await view.snapshot()


async def test_a_loop_that_hangs_does_not_live(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_TIMEOUT_S", 0.05)
    view, released = DaemonView(), threading.Event()
    await view.check_alive()
    begin(view, loop)
    loop.call_soon_threadsafe(released.wait)
    try:
        with pytest.raises(SilentError):
            await view.check_alive()
    finally:
        released.set()


async def test_a_call_that_was_cancelled_together_with_its_answer_went_on(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Bug: the page's samples went on, and the daemon waited for their end when it stopped."""
    view = DaemonView()
    begin(view, loop)
    call = asyncio.create_task(view.snapshot())
    await asyncio.sleep(0)
    # Blocks this loop until the other one has answered the call.
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_that_was_cancelled_while_the_daemon_stopped_went_on(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """Bug: it was taken for one which the daemon's loop had ended."""
    view = DaemonView()
    begin(view, loop)
    hangs = threading.Event()
    loop.call_soon_threadsafe(hangs.wait)
    call = asyncio.create_task(view.snapshot())
    await asyncio.sleep(0)
    view.begin_draining()
    call.cancel()
    try:
        with pytest.raises(asyncio.CancelledError):
            await call
    finally:
        hangs.set()


async def test_a_call_that_the_ending_loop_cancels_has_no_answer(
    loop: asyncio.AbstractEventLoop,
) -> None:
    view = DaemonView()

    async def is_cancelled() -> Snapshot:
        raise asyncio.CancelledError

    async def serving() -> None:
        view.begin_serving(is_cancelled)

    asyncio.run_coroutine_threadsafe(serving(), loop).result()
    assert await view.snapshot() is None
