"""Waiting for what another task or process does; the test's timeout is the limit."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

ResultT = TypeVar("ResultT")
POLL_S = 0.005
PATIENCE_S = 120.0
"""A limit for what must happen, where one is needed: no machine is so slow."""
SOON_S = 30.0
"""A limit for what waits for nothing that a test holds back, so that the test fails where it does
instead of hanging. Less than PATIENCE_S, for which devices of tests hold transfers back."""


async def until(condition: Callable[[], bool]) -> None:
    """Returns as soon as ``condition`` holds."""
    while not condition():  # noqa: ASYNC110 - conditions are plain state, not events
        await asyncio.sleep(POLL_S)


async def until_async(condition: Callable[[], Awaitable[bool]]) -> None:
    """The same for a condition that has to be asked for."""
    while not await condition():  # noqa: ASYNC110 - as above
        await asyncio.sleep(POLL_S)


def wait_until(condition: Callable[[], bool], *, within_s: float | None = None) -> None:
    """The same for tests without an event loop; after a limit it raises AssertionError."""
    end_s = None if within_s is None else time.monotonic() + within_s
    while not condition():
        assert end_s is None or time.monotonic() < end_s, "it did not come true"
        time.sleep(POLL_S)


def soon(call: Callable[[], ResultT]) -> ResultT:
    """What a call returns or raises that must not wait for what the test holds back.

    Raises AssertionError where it does, and leaves its thread alone.
    """
    outcome: Future[ResultT] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON_S)
    assert outcome.done(), "the call waits for something"
    return outcome.result()
