"""Waits of the event loop for what threads do, each with a deadline; its long work in slices.

Deadlines are on the monotonic clock.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from kvstored.server.errors import refuse
from kvstored_contract.limits import CALL_DEADLINE_MS
from kvstored_contract.reasons import Reason

ResultT = TypeVar("ResultT")


def deadline_in(deadline_ms: int = 0) -> float:
    """The deadline of a call that names so many milliseconds from now; 0: it names none."""
    return time.monotonic() + (deadline_ms or CALL_DEADLINE_MS) / 1000


async def outcome(future: "Future[ResultT]", deadline: float) -> ResultT:
    """Awaits a future of a thread; raises RefusedError when the deadline passes first.

    What the future stands for goes on then, as it does when the caller is cancelled.
    """
    try:
        if not await is_done_by(future, deadline):
            refuse(
                Reason.DEADLINE,
                "the call was not done at its deadline and goes on; look at what became of it, or "
                "call again with more time",
            )
        return future.result()
    finally:
        # An error keeps this frame, which would keep the error.
        del future


async def is_done_by(future: "Future[Any]", deadline: float) -> bool:
    """Awaits a future of a thread until the deadline; whether it is done."""
    if future.done():
        return True
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def wake(_: "Future[Any]") -> None:
        # The loop is gone when the daemon has stopped meanwhile.
        if not loop.is_closed():
            loop.call_soon_threadsafe(done.set)

    future.add_done_callback(wake)
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await done.wait()
    except TimeoutError:
        return future.done()
    return True


def all_settled(outcomes: "Iterable[Future[Any]]") -> "Future[None]":
    """Resolves when each of these futures has, whatever to."""
    pending = {each for each in outcomes if not each.done()}
    settled: Future[None] = Future()
    lock = threading.Lock()
    remaining = len(pending)

    def one_is_done(_: "Future[Any]") -> None:
        nonlocal remaining
        with lock:
            remaining -= 1
            is_last = remaining == 0
        if is_last:
            settled.set_result(None)

    for each in pending:
        each.add_done_callback(one_is_done)
    if not pending:
        settled.set_result(None)
    return settled


SLICE_ITEMS = 256
"""Some hundred microseconds of what is done for each chunk of a call."""

ItemT = TypeVar("ItemT")


async def in_slices(items: Sequence[ItemT]) -> AsyncIterator[Sequence[ItemT]]:
    """Stretches of the items, between which everybody else has a turn."""
    for start in range(0, len(items), SLICE_ITEMS):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + SLICE_ITEMS]
