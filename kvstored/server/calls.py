"""What every call of every service goes through: authentication and refusals."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import NoReturn, ParamSpec, Protocol, Self, TypeVar

import grpc

from kvstored.server.errors import RefusedError, refusal_of
from kvstored.server.session import Session
from kvstored.server.session_table import SessionTable
from kvstored.tiers.hierarchy import TieredStore
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA, Reason

LOGGER = logging.getLogger(__name__)
DETAILS_CHARACTERS_MAX = 500
"""A sentence may repeat what the client sent; gRPC tears down a call whose status is long."""

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
    put_executor: Executor
    call_executor: Executor

    async def in_put_thread(
        self,
        session: Session,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """Runs a blocking function on a thread for puts, within the session's share."""
        return await session.put_threads.run(self.put_executor, function, *args, **kwargs)

    async def in_call_thread(
        self,
        session: Session,
        function: Callable[Arguments, ResultT],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> ResultT:
        """Runs a blocking function on a thread for other calls, within the session's share."""
        return await session.call_threads.run(self.call_executor, function, *args, **kwargs)


class Servicer(Protocol):
    """A servicer whose methods ``session_call`` wraps."""

    @property
    def services(self) -> Services:
        """The shared parts."""


ServicerT = TypeVar("ServicerT", bound=Servicer)
RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")


def session_call(
    method: Callable[[ServicerT, RequestT, Session], Awaitable[ReplyT]],
) -> Callable[[ServicerT, RequestT, grpc.aio.ServicerContext[RequestT, ReplyT]], Awaitable[ReplyT]]:
    """Makes a gRPC method of one that takes the caller's session.

    Refusals become a status code with the reason as trailing metadata; every other
    error is logged with its cause and told to the client as INTERNAL.
    """

    @functools.wraps(method)
    async def call(
        self: ServicerT, request: RequestT, context: grpc.aio.ServicerContext[RequestT, ReplyT]
    ) -> ReplyT:
        try:
            session = self.services.sessions.find(token_of(context))
            with self.services.calls:
                return await method(self, request, session)
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is not None:
                await abort(context, refusal)
            LOGGER.exception("%s failed", method.__qualname__)
            await context.abort(
                grpc.StatusCode.INTERNAL,
                "a fault of the daemon; its log has the cause",
                ((REASON_METADATA, Reason.INTERNAL.name),),
            )
            raise

    return call


async def outcome(future: Future[ResultT]) -> ResultT:
    """Awaits a future of the store; a client that gives up does not cancel it."""
    if future.done():
        return future.result()
    return await asyncio.shield(asyncio.wrap_future(future))


async def abort(
    context: grpc.aio.ServicerContext[RequestT, ReplyT], refusal: RefusedError
) -> NoReturn:
    """Ends a call with a refusal's status, sentence and reason."""
    details = str(refusal)[:DETAILS_CHARACTERS_MAX]
    await context.abort(refusal.status, details, refusal.metadata)
    raise refusal


def token_of(context: grpc.aio.ServicerContext[RequestT, ReplyT]) -> str:
    """The token that a call carries; empty without one."""
    for key, value in context.invocation_metadata() or ():
        if key == TOKEN_METADATA and isinstance(value, str):
            return value
    return ""
