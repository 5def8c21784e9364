"""Clients of a store in memory, in the same process: the real ones without sockets and gRPC."""

from typing import TypedDict, Unpack

from kvstored_client.aio.client import AsyncClient, LoopLink
from kvstored_client.aio.read import AsyncRead
from kvstored_client.aio.transport import AioSignal
from kvstored_client.session.connection import LinkT
from kvstored_client.session.options import Options
from kvstored_client.session.session import Session
from kvstored_client.testing.memory_link import (
    AioMemoryTransport,
    MemoryTransport,
    open_memory_session,
)
from kvstored_client.testing.memory_read import AsyncMemoryRead, MemoryRead
from kvstored_client.testing.served_read import ServedRead
from kvstored_client.testing.store import MemoryStore
from kvstored_client.threads.client import Client, ThreadLink
from kvstored_client.threads.read import Read
from kvstored_client.threads.transport import Signal
from kvstored_client.verbs.base import ClientBase, OnRefusal
from kvstored_client.verbs.progress import ReadProgress

PLACE = "in memory"
"""What messages name instead of a socket."""


class MemoryLink(ThreadLink):
    """A session with a store in memory."""

    __slots__ = ()

    def __init__(self, store: MemoryStore, session: Session) -> None:
        self.session = session
        self.transport = MemoryTransport(store, session)
        self.signal = Signal(session.presence)


class AioMemoryLink(LoopLink):
    """A session with a store in memory."""

    __slots__ = ()

    def __init__(self, store: MemoryStore, session: Session) -> None:
        self.session = session
        self.transport = AioMemoryTransport(store, session)
        self.signal = AioSignal(session.presence)


class ClientOptions(TypedDict, total=False):
    """The options of ``Client`` besides its socket."""

    arena_bytes: int | str
    name: str
    salt: str
    strict: bool
    reconnect_interval_s: float
    on_refusal: OnRefusal | None


class _InMemory(ClientBase[LinkT]):
    """The arena and the sessions of both clients."""

    store: MemoryStore
    _room_bytes: int | None

    @property
    def region_bytes_max(self) -> int:
        """Bytes that all regions of the arena can have together. Does not connect."""
        return super().region_bytes_max if self._room_bytes is None else self._room_bytes

    def _open_session(self, options: Options) -> Session:
        return open_memory_session(self.store, options, self._room_bytes)


class MemoryClient(_InMemory[ThreadLink], Client):
    """A ``Client`` of a store in memory: every verb, value and error is the real one's.

    ``room_bytes``: how many bytes regions may have together, exactly, instead of what an arena
    of ``arena_bytes`` has room for (0: none). The other options are those of ``Client``; a store
    that was killed is tried again at once unless ``reconnect_interval_s`` says otherwise.
    """

    def __init__(
        self,
        store: MemoryStore,
        *,
        room_bytes: int | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.store = store
        self._room_bytes = room_bytes
        Client.__init__(self, PLACE, **_at_once(options))

    def _make_link(self, session: Session) -> ThreadLink:
        return MemoryLink(self.store, session)

    def _read_of(self, link: ThreadLink | None, progress: ReadProgress) -> Read:
        served = _served(self.store, link, progress)
        if link is None or served is None:
            return super()._read_of(link, progress)
        return MemoryRead(progress, link.signal, served)


class AsyncMemoryClient(_InMemory[LoopLink], AsyncClient):
    """An ``AsyncClient`` of a store in memory; as ``MemoryClient``."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        room_bytes: int | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.store = store
        self._room_bytes = room_bytes
        AsyncClient.__init__(self, PLACE, **_at_once(options))

    def _make_link(self, session: Session) -> LoopLink:
        return AioMemoryLink(self.store, session)

    def _read_of(self, link: LoopLink | None, progress: ReadProgress) -> AsyncRead:
        served = _served(self.store, link, progress)
        if link is None or served is None:
            return super()._read_of(link, progress)
        return AsyncMemoryRead(progress, link.signal, served)


def _at_once(options: ClientOptions) -> ClientOptions:
    """A store that is back is found at once, unless the options say otherwise."""
    options.setdefault("reconnect_interval_s", 0.0)
    return options


def _served(
    store: MemoryStore, link: ThreadLink | LoopLink | None, progress: ReadProgress
) -> ServedRead | None:
    """The store's side of a read; None of one that it does not know."""
    offset = progress.board.offset
    if link is None or offset is None:
        return None
    session = store.sessions.get(link.session.token)
    return next(
        (read for read in reversed(store.reads) if read.is_at(session, offset)),
        None,
    )
