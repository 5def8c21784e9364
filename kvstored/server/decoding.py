"""How requests come in: the token first, then the message, decoded where a refusal can be told.

gRPC receives the message of a unary call before it asks anybody. So every method is served as one
that takes a stream: nothing but what the connection buffers is received for a caller without a
session. What cannot be decoded gRPC would answer with UNKNOWN, and log it as a fault of the daemon.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

from kvstored.server.calls import abort, token_of
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.session_table import SessionTable
from kvstored_contract.reasons import Reason

MESSAGE_TIMEOUT_S = 30.0
"""How long a call may stay in progress without its message."""

if TYPE_CHECKING:
    # The classes of gRPC take no parameters when the program runs.
    Handler = grpc.RpcMethodHandler[Any, Any]


class _Registry:
    """What generated code adds a service to: passes its methods on, with a way in of our own."""

    def __init__(self, server: grpc.aio.Server, sessions: SessionTable) -> None:
        self._server = server
        self._sessions = sessions

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Does nothing: generated code adds every method here, and again below by its name."""

    def add_registered_method_handlers(
        self, service: str, handlers: "Mapping[str, Handler]"
    ) -> None:
        """Adds the methods of one service, all of them unary."""
        decoding = {name: _decoding(handler, self._sessions) for name, handler in handlers.items()}
        handler = grpc.method_handlers_generic_handler(service, decoding)
        self._server.add_generic_rpc_handlers((handler,))


def decoding_registry(server: grpc.aio.Server, sessions: SessionTable) -> grpc.aio.Server:
    """What services are added to instead of ``server``; calls of ``sessions`` are let in."""
    return cast("grpc.aio.Server", _Registry(server, sessions))


def _decoding(handler: "Handler", sessions: SessionTable) -> "Handler":
    decode = handler.request_deserializer
    assert decode is not None
    serve = cast("Callable[[Any, Any], Awaitable[Any]]", handler.unary_unary)

    async def call(_: object, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        with contextlib.ExitStack() as admitted:
            try:
                session = sessions.find(token_of(context))
                admitted.enter_context(session.call())
                request = _decoded(await _received(context), decode)
            except RefusedError as refusal:
                await abort(context, refusal)
            return await serve(request, context)

    return grpc.stream_unary_rpc_method_handler(
        call, response_serializer=handler.response_serializer
    )


async def _received(context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
    """The body of a call; raises RefusedError when it does not come."""
    try:
        async with asyncio.timeout(MESSAGE_TIMEOUT_S):
            return await context.read()
    except TimeoutError:
        refuse(
            Reason.DEADLINE,
            f"the message of the call did not arrive within {MESSAGE_TIMEOUT_S:g} s; call again",
        )


def _decoded(body: Any, decode: "Callable[[bytes], Any]") -> Any:
    """The message of a body, which is no bytes where the client sent none; raises RefusedError."""
    with contextlib.suppress(DecodeError):
        if isinstance(body, bytes):
            return decode(body)
    return refuse(Reason.FIELD_INVALID, "the request is not a message of this method")
