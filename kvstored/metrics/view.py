"""The daemon as its monitoring sees it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from enum import StrEnum
from typing import TypeVar

from kvstored.metrics.snapshot import HotRow, Snapshot

AnswerT = TypeVar("AnswerT")
LookAtHottest = Callable[[int], Awaitable[tuple[HotRow, ...]]]

SNAPSHOT_TIMEOUT_S = 5.0
"""An event loop that is silent for so long does not live."""


class Phase(StrEnum):
    """Where in its life the daemon is."""

    RECOVERING = "recovering"
    SERVING = "serving"
    DRAINING = "draining"


class SilentError(Exception):
    """The daemon's event loop has not answered in time."""


class DaemonView:
    """Thread-safe. ``begin_serving`` and ``begin_draining`` are called on the daemon's loop."""

    def __init__(self) -> None:
        self._phase = Phase.RECOVERING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._look: Callable[[], Awaitable[Snapshot]] | None = None
        self._hottest: LookAtHottest | None = None
        self._lock = threading.Lock()

    @property
    def phase(self) -> Phase:
        """The phase of now."""
        return self._phase

    def begin_serving(
        self, look: Callable[[], Awaitable[Snapshot]], hottest: LookAtHottest | None = None
    ) -> None:
        """From now on ``look`` tells what there is, and ``hottest`` what is read most.

        Both are called on this event loop.
        """
        with self._lock:
            self._loop, self._look = asyncio.get_running_loop(), look
            self._hottest = hottest
            self._phase = Phase.SERVING

    def begin_draining(self) -> None:
        """No new work is taken."""
        with self._lock:
            self._loop, self._look = None, None
            self._phase = Phase.DRAINING

    async def check_alive(self) -> None:
        """Returns when the daemon's loop has run; at once before and after serving. On any loop.

        Waits for no thread of the daemon and no lock of its store: those that are busy delay
        ``snapshot``, and a daemon is no less alive for it. Raises SilentError.
        """
        with self._lock:
            if self._loop is None:
                return
            asked = asyncio.run_coroutine_threadsafe(_called(_nothing), self._loop)
        await self._answer(asked)

    async def snapshot(self) -> Snapshot | None:
        """What there is now; None before and after serving. On any loop.

        Raises SilentError where the daemon's loop does not answer.
        """
        with self._lock:
            if self._loop is None or self._look is None:
                return None
            asked = asyncio.run_coroutine_threadsafe(_called(self._look), self._loop)
        return await self._answer(asked)

    async def hottest(self, count: int) -> tuple[HotRow, ...]:
        """Up to ``count`` sequences that are read most; none before and after serving.

        As ``snapshot``.
        """
        with self._lock:
            if self._loop is None or self._hottest is None:
                return ()
            asked = asyncio.run_coroutine_threadsafe(_called(self._hottest, count), self._loop)
        return await self._answer(asked) or ()

    async def _answer(self, asked: Future[AnswerT]) -> AnswerT | None:
        """What the daemon's loop says; None where it ends before it has run the call.

        Not by asyncio.wait_for: up to Python 3.11 that loses a cancellation of this task which
        comes together with the answer.
        """
        answer = asyncio.wrap_future(asked)
        try:
            await asyncio.wait([answer], timeout=SNAPSHOT_TIMEOUT_S)
            if not answer.done():
                raise SilentError
        finally:
            answer.cancel()
        return None if answer.cancelled() else answer.result()


async def _nothing() -> None:
    pass


async def _called(look: Callable[..., Awaitable[AnswerT]], *arguments: int) -> AnswerT:
    return await look(*arguments)
