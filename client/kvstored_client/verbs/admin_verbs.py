"""Verbs of the admin service, as flows that any transport can drive. They always raise."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

from google.protobuf.message import Message

from kvstored_client.errors import StoreError
from kvstored_client.session.session import Session
from kvstored_client.verbs import methods
from kvstored_client.verbs.call import Flow, Method, Verb, ask, building
from kvstored_protos.v1 import admin_pb2

ReplyT = TypeVar("ReplyT", bound=Message)

LISTED_CHUNKS = 100
"""Of one answer, where the caller asks for no other number."""


def stats() -> Verb[admin_pb2.StatsReply]:
    """Counters and sizes of the daemon."""
    return _question("stats", methods.STATS, admin_pb2.StatsRequest)


def list_chunks(key_prefix: str, limit: int) -> Verb[admin_pb2.ListChunksReply]:
    """Stored chunks whose hexadecimal key begins with ``key_prefix``."""
    return _question(
        "list_chunks",
        methods.LIST_CHUNKS,
        lambda: admin_pb2.ListChunksRequest(key_prefix=key_prefix, limit=limit),
    )


def inspect(key_prefix: str) -> Verb[admin_pb2.InspectReply]:
    """Everything about one chunk."""
    return _question(
        "inspect", methods.INSPECT, lambda: admin_pb2.InspectRequest(key_prefix=key_prefix)
    )


def _question(name: str, method: Method[ReplyT], build: Callable[[], Message]) -> Verb[ReplyT]:
    def flow(session: Session) -> Flow[ReplyT]:
        with building():
            request = build()
        return (yield from ask(session, method, request))

    return Verb(name=name, flow=flow, missed=_raise, always_raise=True)


def _raise(error: StoreError) -> NoReturn:
    raise error
