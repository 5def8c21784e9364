"""What the methods of all services share: the store, its threads, whose call it is, its time."""

import asyncio
import threading
from bisect import bisect_left
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ParamSpec, Self, TypeVar, cast

import grpc

from kvstored.call_times import BUCKETS_S, CallTimes
from kvstored.server.operators.intake import Intake
from kvstored.server.operators.kept_pins import KeptPins
from kvstored.server.session import Session
from kvstored.server.session_table import SessionTable
from kvstored.tiers.tiered_store import TieredStore


class Latencies:
    """Times of calls by verb. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}
        self._refused: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, verb: str, duration_s: float, *, is_refused: bool) -> None:
        """One call has ended."""
        with self._lock:
            counts = self._counts.setdefault(verb, [0] * (len(BUCKETS_S) + 1))
            counts[bisect_left(BUCKETS_S, duration_s)] += 1
            self._sums_s[verb] = self._sums_s.get(verb, 0.0) + duration_s
            self._refused[verb] = self._refused.get(verb, 0) + is_refused

    def times(self) -> dict[str, CallTimes]:
        """All verbs that were called, as they are now."""
        with self._lock:
            return {
                verb: CallTimes(tuple(counts), self._sums_s[verb], self._refused[verb])
                for verb, counts in self._counts.items()
            }


Arguments = ParamSpec("Arguments")
ResultT = TypeVar("ResultT")


class CallsInProgress:
    """Counts the calls that were let in. Belongs to the event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> Self:
        self._count += 1
        self._idle.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    async def finished(self, timeout_s: float) -> bool:
        """Waits until no call is in progress; False when that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What the servicers share.

    Puts may wait for room for long, so that they have threads of their own. Each pool has
    the share of every session that may be open.
    """

    sessions: SessionTable
    store: TieredStore
    calls: CallsInProgress
    latencies: Latencies
    intake: Intake
    pins: KeptPins
    put_executor: Executor
    call_executor: Executor

    async def in_put_thread(
        self,
        session: Session,
        deadline: float,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """Runs a function that blocks for room on a thread for puts, to its end.

        The session's share of threads is waited for until the deadline, which the function
        has as well.
        """
        return await session.put_threads.run(deadline, self.put_executor, function, *args, **kwargs)

    async def in_large_put_thread(
        self, session: Session, deadline: float, function: Callable[[], ResultT]
    ) -> ResultT:
        """As ``in_put_thread``, on the session's thread for puts of many chunks."""
        return await session.large_put_threads.run(deadline, self.put_executor, function)

    async def in_large_thread(
        self, session: Session, deadline: float, function: Callable[[], ResultT]
    ) -> ResultT:
        """Runs a look-up of many chunks on the session's thread for those, to its end.

        What it does to the arena or to pins must not be left undone.
        """
        return await session.large_threads.run(deadline, self.call_executor, function)

    async def in_decoding_thread(
        self, session: Session, deadline: float, function: Callable[[], ResultT]
    ) -> ResultT:
        """Decodes a large message on the session's thread for that."""
        return await session.decoding_threads.run(deadline, self.call_executor, function)

    async def in_call_thread(
        self,
        session: Session,
        deadline: float,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """Runs a blocking function on a thread for other calls, within the session's share.

        Raises RefusedError at the deadline; the function goes on then, so that what it changes
        is changed as a whole.
        """
        return await session.call_threads.run_until(
            deadline, self.call_executor, function, *args, **kwargs
        )


ServicerT = TypeVar("ServicerT")
RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")


def session_call(
    method: Callable[[ServicerT, RequestT, Session], Awaitable[ReplyT]],
) -> Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[RequestT, ReplyT]], Awaitable[ReplyT]]:
    """Marks a gRPC method that takes the caller's session in the place of gRPC's context.

    ``admission`` calls it so, and tells the client what it raises.
    """
    return cast(
        "Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[RequestT, ReplyT]], "
        "Awaitable[ReplyT]]",
        method,
    )
