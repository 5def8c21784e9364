"""Calls as values: what to ask and what the answer means, without any transport.

A *flow* is a generator that yields calls and is sent their replies (or thrown a
StoreError) until it returns a result. The sync and the asyncio facade drive the same
flows, each with its own transport.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from google.protobuf.message import Message

from kvstored_client.errors import RequestInvalidError, StoreError
from kvstored_client.session.limits import CALL_TIMEOUT_S
from kvstored_client.session.session import Session
from kvstored_contract.reasons import Reason

ReplyT = TypeVar("ReplyT", bound=Message)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Method(Generic[ReplyT]):
    """A unary gRPC method: its path and the type of its reply."""

    path: str
    reply: type[ReplyT]


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way to one method."""

    method: Method[Any]
    request: Message
    timeout_s: float


Flow = Generator[Call, Message, ResultT]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb(Generic[ResultT]):
    """One operation of the client.

    ``missed`` gives the result that stands for a failure. Verbs that ``always_raise``
    have none and do so even in a client that is not strict.
    """

    name: str
    flow: Callable[[Session], Flow[ResultT]]
    missed: Callable[[StoreError], ResultT]
    always_raise: bool = False


def ask(
    session: Session,
    method: Method[ReplyT],
    request: Message,
    *,
    timeout_s: float = CALL_TIMEOUT_S,
    uses_arena: bool = False,
) -> Generator[Call, Message, ReplyT]:
    """Makes one call.

    A call that ``uses_arena`` and ends in uncertainty (no answer of the daemon, or an
    interrupt) ends the session: the daemon might still touch memory that the engine
    would use again, and then store other bytes than were meant or overwrite them.
    """
    try:
        reply = yield Call(method, request, timeout_s)
    except StoreError as error:
        if error.reason is Reason.TOKEN_UNKNOWN or (uses_arena and not error.refused):
            session.presence.end()
        raise
    except GeneratorExit:
        if uses_arena:
            session.presence.end()
        raise
    return cast("ReplyT", reply)


@contextmanager
def building() -> Iterator[None]:
    """Turns what a malformed argument raises into a RequestInvalidError."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise RequestInvalidError(f"not a valid request: {error}") from error
