"""How a client in the same process reaches a store in memory: a session without a daemon."""

import asyncio
import mmap
import os
import socket
import time

import grpc
from google.protobuf.message import Message

from kvstored_client.aio.transport import AioTransport
from kvstored_client.errors import (
    DaemonAbsentError,
    SessionRefusedError,
    StoreError,
    error_of_status,
    reason_of,
)
from kvstored_client.session.arena import BOARDS_BYTES_MAX, Arena
from kvstored_client.session.free_space import FreeSpace
from kvstored_client.session.options import Options
from kvstored_client.session.presence import Presence
from kvstored_client.session.region import Region
from kvstored_client.session.session import Session
from kvstored_client.testing.calls import SERVED_CALLS
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.refusal import GoneError, RefusedError, UnservedError
from kvstored_client.testing.store import MemoryStore
from kvstored_client.threads.transport import Transport
from kvstored_client.verbs.call import Call
from kvstored_contract.layout import align_up
from kvstored_contract.limits import ALIGNMENT_BYTES, PROTOCOL_VERSION
from kvstored_contract.reasons import REASON_METADATA
from kvstored_protos.v1 import session_pb2


class CountedArena(Arena):
    """An arena that tells its store how many regions and boards are in use.

    ``room_bytes``: how much of it regions may have together; None: as of every arena.
    """

    __slots__ = ("_payload_bytes", "_store")

    def __init__(
        self,
        memory: memoryview,
        presence: Presence,
        store: MemoryStore,
        room_bytes: int | None,
    ) -> None:
        super().__init__(memory, presence.check)
        self._store = store
        self._payload_bytes: dict[int, int] = {}
        if room_bytes is not None:
            self._free = FreeSpace(len(memory), reserved_bytes=len(memory) - room_bytes)

    def allocate(self, byte_count: int) -> Region | None:
        """As of every arena, unless the store's faults say that it is full."""
        region = None if self._store.faults.arena_is_full else super().allocate(byte_count)
        if region is not None:
            self._payload_bytes[region.offset] = align_up(byte_count)
            self._store.count_region(align_up(byte_count))
        return region

    def allocate_board(self, byte_count: int) -> Region | None:
        """As of every arena."""
        region = super().allocate_board(byte_count)
        if region is not None:
            self._store.count_board(1)
        return region

    def _release(self, offset: int) -> None:
        byte_count = self._payload_bytes.pop(offset, 0)
        super()._release(offset)
        if byte_count:
            self._store.count_region(-byte_count)
        else:
            self._store.count_board(-1)


def open_memory_session(store: MemoryStore, options: Options, room_bytes: int | None) -> Session:
    """A session with the store; raises as ``open_session``."""
    if not store.is_running:
        raise DaemonAbsentError("the store in memory was killed")
    store.note(
        session_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            client_name=options.name,
            arena_bytes=options.arena_bytes,
        )
    )
    ours, theirs = socket.socketpair()
    eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    presence = Presence(ours, eventfd)
    arena_bytes = options.arena_bytes
    if room_bytes is not None:
        room_bytes = room_bytes // ALIGNMENT_BYTES * ALIGNMENT_BYTES
        arena_bytes = room_bytes + BOARDS_BYTES_MAX
    memory = memoryview(mmap.mmap(-1, arena_bytes))

    def make(session_id: int) -> MemorySession:
        return MemorySession(session_id, memory, connection=theirs, eventfd=os.dup(eventfd))

    welcome = store.admit(make)
    if welcome.refusal:
        theirs.close()
        raise SessionRefusedError(welcome.refusal, reason=reason_of(welcome.reason), refused=True)
    return Session(welcome, presence, CountedArena(memory, presence, store, room_bytes))


class MemoryTransport(Transport):
    """Calls a store in memory on the caller's thread."""

    def __init__(self, store: MemoryStore, session: Session) -> None:
        self._store = store
        self._token = session.token

    def call(self, call: Call) -> Message:
        """Serves the call after its delay; raises StoreError."""
        delay_s, is_late = _delay(self._store, call)
        if delay_s:
            time.sleep(delay_s)
        return _answer(self._store, self._token, call, is_late=is_late)

    def close(self) -> None:
        """Does nothing: there is no channel to free."""


class AioMemoryTransport(AioTransport):
    """Calls a store in memory on the event loop, which must not be blocked by faults."""

    def __init__(self, store: MemoryStore, session: Session) -> None:
        super().__init__(session)
        self._store = store
        self._token = session.token

    async def call(self, call: Call) -> Message:
        """Serves the call after its delay; raises StoreError."""
        delay_s, is_late = _delay(self._store, call)
        await asyncio.sleep(delay_s)
        return _answer(self._store, self._token, call, is_late=is_late)

    async def close(self) -> None:
        """Does nothing: there is no channel to free."""


def _delay(store: MemoryStore, call: Call) -> tuple[float, bool]:
    """How long the call takes before it is served, and whether that is longer than it waits."""
    delay_s = store.faults.delays_s.get(SERVED_CALLS[call.method.path].name, 0.0)
    return min(delay_s, call.timeout_s), delay_s > call.timeout_s


def _answer(store: MemoryStore, token: str, call: Call, *, is_late: bool) -> Message:
    if is_late:
        raise error_of_status(grpc.StatusCode.DEADLINE_EXCEEDED, "the store did not answer", ())
    try:
        return store.answer(token, call.method.path, call.request)
    except UnservedError as error:
        raise _typed(error) from error


def _typed(error: UnservedError) -> StoreError:
    """The error that the same answer of a daemon would be."""
    if isinstance(error, RefusedError):
        metadata = ((REASON_METADATA, error.reason.name),)
        return error_of_status(grpc.StatusCode.FAILED_PRECONDITION, str(error), metadata)
    is_gone = isinstance(error, GoneError)
    status = grpc.StatusCode.UNAVAILABLE if is_gone else grpc.StatusCode.UNKNOWN
    return error_of_status(status, str(error), ())
