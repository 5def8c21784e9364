"""Waiting for what another task or process does; the test's timeout is the limit."""

import asyncio
import time
from collections.abc import Callable

POLL_S = 0.005
PATIENCE_S = 120.0
"""A limit for what must happen, where one is needed: no machine is so slow."""


async def until(condition: Callable[[], bool]) -> None:
    """Returns as soon as ``condition`` holds."""
    while not condition():  # noqa: ASYNC110 - conditions are plain state, not events
        await asyncio.sleep(POLL_S)


def wait_until(condition: Callable[[], bool]) -> None:
    """The same for tests without an event loop."""
    while not condition():
        time.sleep(POLL_S)
