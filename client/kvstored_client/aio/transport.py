"""Drives flows over an asyncio gRPC channel, and waits for the daemon's reports on the loop."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from kvstored_client.errors import DaemonAbsentError, StoreError
from kvstored_client.session.channel import CHANNEL_OPTIONS, typed
from kvstored_client.session.limits import LOOK_INTERVAL_S
from kvstored_client.session.presence import Presence
from kvstored_client.session.session import Session
from kvstored_client.verbs.call import Call, Flow
from kvstored_contract.reasons import TOKEN_METADATA

ResultT = TypeVar("ResultT")


class AioTransport:
    """Calls with one session's token, all on one event loop."""

    def __init__(self, session: Session) -> None:
        self._target = session.grpc_target
        self._metadata = ((TOKEN_METADATA, session.token),)
        self._channel: grpc.aio.Channel | None = None
        self._methods: dict[str, Callable[..., Awaitable[Message]]] = {}

    async def call(self, call: Call) -> Message:
        """Sends the call and waits for its reply; raises StoreError."""
        try:
            return await self._method(call)(
                call.request, timeout=call.timeout_s, metadata=self._metadata
            )
        except grpc.RpcError as error:
            raise typed(error) from error
        except grpc.aio.UsageError as error:
            raise DaemonAbsentError(f"the session has ended: {error}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled the task: the channel was closed under the call.
            raise DaemonAbsentError("the client was closed") from error

    async def drive(self, flow: Flow[ResultT]) -> ResultT:
        """Runs a flow to its result; raises what the flow raises."""
        try:
            call = next(flow)
            while True:
                try:
                    reply = await self.call(call)
                except StoreError as error:
                    call = flow.throw(error)
                else:
                    call = flow.send(reply)
        except StopIteration as stop:
            result: ResultT = stop.value
            return result
        finally:
            flow.close()

    async def close(self) -> None:
        """Frees the channel."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _method(self, call: Call) -> Callable[..., Awaitable[Message]]:
        if self._channel is None:
            # Made here and not before: an asyncio channel belongs to the running loop.
            self._channel = grpc.aio.insecure_channel(self._target, options=CHANNEL_OPTIONS)
        path = call.method.path
        if path not in self._methods:
            self._methods[path] = self._channel.unary_unary(
                path,
                request_serializer=type(call.request).SerializeToString,
                response_deserializer=call.method.reply.FromString,
            )
        return self._methods[path]


class AioSignal:
    """Lets many tasks of one event loop wait for one eventfd."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def wait(self, settled: Callable[[], bool], deadline: float) -> bool:
        """Waits until ``settled()`` or time.monotonic() reaches ``deadline``.

        Returns what ``settled()`` is then. It must become true when the session is lost.
        """
        while not settled():
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return False
            self._listen()
            report: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(report)
            try:
                await asyncio.wait([report], timeout=min(remaining_s, LOOK_INTERVAL_S))
            finally:
                self._waiting.discard(report)
        return True

    def close(self) -> None:
        """Stops listening and wakes every task."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.remove_reader(self._presence.eventfd)
            loop.remove_reader(self._presence.socket_descriptor)
        self._wake()

    def _listen(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._presence.eventfd, self._on_report)
            self._loop.add_reader(self._presence.socket_descriptor, self._on_end)

    def _on_report(self) -> None:
        self._presence.drain()
        self._wake()

    def _on_end(self) -> None:
        if not self._presence.check():
            self.close()

    def _wake(self) -> None:
        for report in self._waiting:
            if not report.done():
                report.set_result(None)


async def uninterrupted(
    work: Coroutine[Any, Any, ResultT],
    undo: Callable[[ResultT], Awaitable[object]] | None = None,
) -> ResultT:
    """Runs ``work`` to its end even when the caller is cancelled meanwhile.

    For work during which the daemon uses memory of the caller, who would free it upon
    the cancellation. That is delivered when the work is done, after ``undo(result)``.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if undo is not None and task.exception() is None:
        await undo(task.result())
    raise cancelled
