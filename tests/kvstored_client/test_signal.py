import os
import socket
import threading
import time

import pytest

from kvstored_client.aio.transport import AioSignal
from kvstored_client.session.presence import Presence
from kvstored_client.threads.transport import Signal


class Board:
    """What a waiter looks at."""

    def __init__(self) -> None:
        mine, self.peer = socket.socketpair()
        self.presence = Presence(mine, os.eventfd(0, os.EFD_NONBLOCK))
        self.done: set[int] = set()

    def report(self, read: int) -> None:
        self.done.add(read)
        os.eventfd_write(self.presence.eventfd, 1)

    def settled(self, read: int) -> bool:
        return self.presence.lost or read in self.done


def far() -> float:
    return time.monotonic() + 60


def test_every_waiting_thread_gets_its_own_report() -> None:
    board = Board()
    signal = Signal(board.presence)
    results: dict[int, bool] = {}

    def wait(read: int) -> None:
        results[read] = signal.wait(lambda: board.settled(read), far())

    threads = [threading.Thread(target=wait, args=(read,)) for read in range(8)]
    for thread in threads:
        thread.start()
    for read in reversed(range(8)):
        board.report(read)
        threads[read].join(30)
        assert not threads[read].is_alive()
    assert results == dict.fromkeys(range(8), True)
    board.peer.close()


def test_the_end_of_the_session_wakes_every_thread() -> None:
    board = Board()
    signal = Signal(board.presence)
    threads = [
        threading.Thread(target=signal.wait, args=(lambda: board.settled(0), far()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    board.peer.close()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert board.presence.lost


def test_ending_the_session_oneself_wakes_the_listener() -> None:
    board = Board()
    thread = threading.Thread(
        target=Signal(board.presence).wait, args=(lambda: board.settled(0), far())
    )
    thread.start()
    board.presence.end()
    thread.join(30)
    assert not thread.is_alive()
    board.peer.close()


def test_a_wait_ends_at_its_deadline() -> None:
    board = Board()
    signal = Signal(board.presence)
    assert not signal.wait(lambda: board.settled(0), time.monotonic() + 0.01)
    assert not signal.wait(lambda: board.settled(0), time.monotonic() - 1)
    board.report(0)
    assert signal.wait(lambda: board.settled(0), time.monotonic() - 1)
    board.peer.close()


async def test_tasks_wait_for_their_own_reports() -> None:
    import asyncio

    board = Board()
    signal = AioSignal(board.presence)
    tasks = [
        asyncio.create_task(signal.wait(lambda read=read: board.settled(read), far()))  # type: ignore[misc]
        for read in range(4)
    ]
    await asyncio.sleep(0)
    for read in reversed(range(4)):
        board.report(read)
        assert await tasks[read]
    assert not await signal.wait(lambda: board.settled(9), time.monotonic() + 0.01)
    board.peer.close()
    assert await signal.wait(lambda: board.settled(9), far())
    signal.close()


async def test_a_cancelled_task_leaves_no_waiter() -> None:
    import asyncio

    board = Board()
    signal = AioSignal(board.presence)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await signal.wait(lambda: board.settled(0), far())
    assert not signal._waiting
    signal.close()
    board.peer.close()
