"""How calls come in: the token first, then the message, then the method; and how they are refused.

gRPC receives the message of a unary call before it asks anybody. So every method is served as one
that takes a stream: nothing but what the connection buffers is received for a caller without a
session. What cannot be decoded gRPC would answer with UNKNOWN, and log it as a fault of the daemon.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

import grpc
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from kvstored.server.calls import Services
from kvstored.server.errors import refusal_of, refuse
from kvstored.server.message_parts import PART_BYTES, message_parts
from kvstored.server.session import Session
from kvstored.server.session_table import SessionTable
from kvstored.turnstile import TURNSTILE
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA, Reason

LOGGER = logging.getLogger(__name__)
MESSAGE_TIMEOUT_S = 30.0
"""How long a call may stay in progress without its message."""
INLINE_BYTES_MAX = PART_BYTES
"""A message of so many bytes is decoded on the event loop, because it takes less than a thread."""
NO_MESSAGE = "the request is not a message of this method"
DETAILS_CHARACTERS_MAX = 500
"""A sentence may repeat what the client sent; gRPC tears down a call whose status is long."""

if TYPE_CHECKING:
    # The classes of gRPC take no parameters when the program runs.
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]

Admit = Callable[[str, "Context"], Callable[[], Session]]
"""Says whose session a call of a method has; what it returns is asked again after each wait. Both
raise RefusedError."""


def by_token(sessions: SessionTable, name: str, context: "Context") -> Callable[[], Session]:
    """The session of the token that the call carries."""
    del name
    return partial(sessions.find, _token_of(context))


class _Registry:
    """What generated code adds a service to: passes its methods on, with a way in of our own."""

    def __init__(self, server: grpc.aio.Server, services: Services, admit: Admit) -> None:
        self._server = server
        self._services = services
        self._admit = admit

    def add_generic_rpc_handlers(self, _: object) -> None:
        """Does nothing: generated code adds every method here, and again below by its name."""

    def add_registered_method_handlers(
        self, service: str, handlers: "Mapping[str, Handler]"
    ) -> None:
        """Adds the methods of one service, all of them unary."""
        admitting = {
            name: _admitting(f"{service}/{name}", handler, self._services, self._admit)
            for name, handler in handlers.items()
        }
        handler = grpc.method_handlers_generic_handler(service, admitting)
        self._server.add_generic_rpc_handlers((handler,))


def admission_registry(
    server: grpc.aio.Server, services: Services, admit: Admit
) -> grpc.aio.Server:
    """What services are added to instead of ``server``; calls that ``admit`` finds are let in."""
    return cast("grpc.aio.Server", _Registry(server, services, admit))


def _admitting(name: str, handler: "Handler", services: Services, admit: Admit) -> "Handler":
    """A handler that calls a method marked by ``session_call`` with the caller's session.

    Refusals become a status code with the reason as trailing metadata; every other
    error is logged with its cause and told to the client as INTERNAL.
    """
    assert handler.request_deserializer is not None
    message_type: type[Message] = handler.request_deserializer.__self__  # type: ignore[attr-defined]  # a method of the message's class
    serve = cast("Callable[[Any, Session], Awaitable[Any]]", handler.unary_unary)
    verb = name.rpartition("/")[2]

    async def call(messages: object, context: "Context") -> Any:
        is_refused, began_s = True, time.monotonic()
        try:
            find = admit(name, context)
            with find().call():
                body = await _received(context)
                with find().message(len(body) if isinstance(body, bytes) else 0):
                    request = await _decoded(body, message_type, find(), services)
                    # The message has all of it, and may wait long.
                    del body
                    # A second look: while the message was awaited the session may have ended,
                    # or the daemon may have begun to stop, which waits for no call before this.
                    session = find()
                    with services.calls, services.intake.call(name):
                        reply = await serve(request, session)
                        is_refused = False
                        return reply
        except Exception as error:
            await _end(context, error, name)
        finally:
            services.latencies.add(verb, time.monotonic() - began_s, is_refused=is_refused)
            # The context keeps the error that ends a refused call, and that keeps this frame.
            del messages, context

    return grpc.stream_unary_rpc_method_handler(
        call, response_serializer=handler.response_serializer
    )


async def _received(context: "Context") -> Any:
    """The body of a call; raises RefusedError when it does not come."""
    try:
        async with asyncio.timeout(MESSAGE_TIMEOUT_S):
            return await context.read()
    except TimeoutError:
        refuse(
            Reason.DEADLINE,
            f"the message of the call did not arrive within {MESSAGE_TIMEOUT_S:g} s; call again",
        )


async def _decoded(
    body: Any, message_type: type[Message], session: Session, services: Services
) -> Any:
    """The message of a body, which is no bytes where the client sent none; raises RefusedError.

    A large one is decoded on the session's thread for that. The session's calls go on in the
    order in which their bodies came: one that comes meanwhile waits its turn.
    """
    if not isinstance(body, bytes):
        refuse(Reason.FIELD_INVALID, NO_MESSAGE)
    try:
        async with session.decoding:
            if len(body) <= INLINE_BYTES_MAX:
                return message_type.FromString(body)
            deadline = time.monotonic() + MESSAGE_TIMEOUT_S
            return await services.in_decoding_thread(
                session, deadline, partial(_decoded_in_parts, body, message_type)
            )
    except DecodeError:
        return refuse(Reason.FIELD_INVALID, NO_MESSAGE)


def _decoded_in_parts(body: bytes, message_type: type[Message]) -> Message:
    """The message of a large body; others have a turn after each part."""
    message = message_type()
    for part in message_parts(body, cast("Descriptor", message_type.DESCRIPTOR)):
        message.MergeFromString(part)
        TURNSTILE.give_way()
    return message


async def _end(context: "Context", error: Exception, name: str) -> NoReturn:
    """Ends a call with the status, sentence and reason of an error."""
    try:
        refusal = refusal_of(error)
        if refusal is not None:
            details = str(refusal)[:DETAILS_CHARACTERS_MAX]
            await context.abort(refusal.status, details, refusal.metadata)
        else:
            LOGGER.error("%s failed", name, exc_info=error)
            await context.abort(
                grpc.StatusCode.INTERNAL,
                "a fault of the daemon; its log has the cause",
                ((REASON_METADATA, Reason.INTERNAL.name),),
            )
        raise error
    finally:
        del context, error


def _token_of(context: "Context") -> str:
    """The token that a call carries; empty without one."""
    for key, value in context.invocation_metadata() or ():
        if key == TOKEN_METADATA and isinstance(value, str):
            return value
    return ""
