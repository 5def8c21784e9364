"""The threads of a pool that one session may occupy at a time."""

import asyncio
import functools
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

from kvstored.server.errors import refuse
from kvstored.server.waits import outcome
from kvstored_contract.reasons import Reason

THREADS_PER_SESSION = 4
"""Of each pool. Puts hold theirs while they wait for room, changes of sequences for the commit."""

Arguments = ParamSpec("Arguments")
ResultT = TypeVar("ResultT")


class ThreadShare:
    """Runs blocking functions for one session; belongs to the event loop.

    What is more than ``thread_count`` waits in order and holds no thread. A pool of so many
    threads for each session that may be open therefore has one for every session at once,
    whatever the others do. Invariant: a thread counts until its function has returned, also
    when the call that wanted it was given up.
    """

    def __init__(self, thread_count: int = THREADS_PER_SESSION) -> None:
        self._slots = asyncio.Semaphore(thread_count)
        self._busy_count = 0
        self._closed = False

    @property
    def is_idle(self) -> bool:
        """Whether no thread is occupied. Once true after ``close``, it stays true."""
        return self._busy_count == 0

    def close(self) -> None:
        """From now on nothing is begun, what waits included."""
        self._closed = True

    async def run(
        self,
        deadline: float,
        executor: Executor,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """Runs ``function`` on a thread of ``executor`` and waits until it returns.

        Only the wait for a thread ends at the ``deadline``: the function uses what must not
        be given back before, and has a deadline of its own. Raises RefusedError when there was
        no thread in time, or when closed.
        """
        future = await self._begun(deadline, executor, function, *args, **kwargs)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # An error keeps this frame, which would keep the error and what the function was given.
            del future, function, args, kwargs

    async def run_until(
        self,
        deadline: float,
        executor: Executor,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """As ``run``, but raises RefusedError too when the function is not over in time.

        It goes on then, and its thread counts until it has returned.
        """
        future = await self._begun(deadline, executor, function, *args, **kwargs)
        try:
            return await outcome(future, deadline)
        finally:
            del future, function, args, kwargs

    async def _begun(
        self,
        deadline: float,
        executor: Executor,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> "Future[ResultT]":
        await self._take_slot(deadline)
        try:
            if self._closed:
                refuse(Reason.TOKEN_UNKNOWN, "the session is closed; connect again")
            future = _submitted(executor, functools.partial(function, *args, **kwargs))
        except BaseException:
            self._slots.release()
            raise
        self._busy_count += 1
        loop = asyncio.get_running_loop()

        def ended(_: Future[ResultT]) -> None:
            loop.call_soon_threadsafe(self._give_back)

        future.add_done_callback(ended)
        return future

    async def _take_slot(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await self._slots.acquire()
        except TimeoutError:
            refuse(
                Reason.DEADLINE,
                "other calls of this session had all of its threads until the deadline; make "
                "fewer at once, or give them more time",
            )

    def _give_back(self) -> None:
        self._busy_count -= 1
        self._slots.release()


def _submitted(executor: Executor, function: Callable[[], ResultT]) -> Future[ResultT]:
    """As ``executor.submit``; a function for which that had no thread is never run.

    A pool that cannot start a thread raises, and keeps what it was given for later.
    """
    future: Future[ResultT] = Future()
    handed: list[tuple[Future[ResultT], Callable[[], ResultT]]] = [(future, function)]
    try:
        executor.submit(_run, handed)
    except BaseException:
        # A thread that became idle meanwhile may have begun it.
        if future.cancel():
            raise
    return future


def _run(handed: "list[tuple[Future[ResultT], Callable[[], ResultT]]]") -> None:
    """Runs the function that was handed over for its future, unless that was cancelled.

    What the function was given and held goes with its end, also when it raises: an error keeps
    the frames that it went through, and they would keep a call's message and a view of the arena,
    and with it the memory and a descriptor of a session that has ended, until the next
    collection. So the frame below, the pool's, holds no more than an empty list.
    """
    future, function = handed.pop()
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function()
    except BaseException as error:
        _forget_locals(error)
        future.set_exception(error)
        # Else the error would keep this frame, which would keep the future and so the error.
        del future, function
    else:
        future.set_result(result)


def _forget_locals(error: BaseException) -> None:
    """Clears the frames that an error, and those that it came from, went through."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is not None and id(each) not in seen:
            # Errors may be each other's cause and context.
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            pending += (each.__cause__, each.__context__)
