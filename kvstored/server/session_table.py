"""All sessions of the daemon: opening them within the limits, finding, closing."""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kvstored.format.identity import ChunkId
from kvstored.server.access import Grant
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.held.arena import Arena
from kvstored.server.held.arena_use import ArenaUse
from kvstored.server.held.bell import Bell
from kvstored.server.held.leases import Lease
from kvstored.server.held.places import OPERATOR_SESSIONS_MAX, Places, operators_places
from kvstored.server.session import (
    CALLS_PER_SESSION_MAX,
    Session,
    SessionIdentity,
    SessionKind,
)
from kvstored.server.waits import SLICE_ITEMS
from kvstored.store.read.read_stream import ReadStream
from kvstored.turnstile import TURNSTILE
from kvstored_contract.layout import align_up
from kvstored_contract.reasons import Reason

LOGGER = logging.getLogger(__name__)
TOKEN_BYTES = 32
CLOSE_POLL_S = 0.005
TICK_S = 0.1
"""How late a lease may end, and a read whose device answers nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Largest arena, bytes of all arenas together, and number of sessions."""

    arena_bytes_max: int
    arenas_bytes_max: int
    sessions_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """What all sessions hold at one moment.

    ``arenas_used_bytes`` of ``arenas_capacity_bytes`` are taken; sessions that are being
    closed count there, because their memory does, and nowhere else.
    """

    session_count: int
    arenas_used_bytes: int
    arenas_capacity_bytes: int
    lease_count: int
    reads_in_flight_count: int


class SessionTable:
    """Belongs to the event loop.

    ``unpin`` returns chunks of ended leases, ``cancel`` gives up a read, ``give_up`` what of
    one is late, ``end`` hears, on a thread of its own, which session's calls are all over.
    """

    def __init__(
        self,
        limits: SessionLimits,
        *,
        unpin: Callable[[Iterable[ChunkId]], None],
        cancel: Callable[[ReadStream], None],
        give_up: Callable[[ReadStream], None],
        end: Callable[[int], None],
    ) -> None:
        self._limits = limits
        self._end = end
        self._unpin = unpin
        self._cancel = cancel
        self._give_up = give_up
        self._by_token: dict[str, Session] = {}
        self._next_id = 1
        self._places = Places(
            sessions_max=limits.sessions_max,
            arenas_bytes_max=limits.arenas_bytes_max,
            sessions_limit="server.sessions_max",
            arenas_limit="server.arenas_bytes_max",
        )
        self._operators_places = operators_places()
        self._taken: dict[int, Places] = {}
        """By session, where it counts until its memory is free."""
        self._draining = False
        # An end waits for those who hold its sequences: it must not keep others from a thread.
        sessions_max = limits.sessions_max + OPERATOR_SESSIONS_MAX
        self._ends = ThreadPoolExecutor(sessions_max, thread_name_prefix="kvstored-end")
        self._unpinning = ThreadPoolExecutor(1, thread_name_prefix="kvstored-unpin")
        self._returning: set[asyncio.Future[None]] = set()
        """Pins on their way back, kept so that none is forgotten."""
        self._closing: set[asyncio.Future[None]] = set()
        """Sessions on their way out: they end also when nobody waits for that any more."""

    @property
    def session_count(self) -> int:
        """Sessions that can make calls."""
        return len(self._by_token)

    @property
    def calls_max(self) -> int:
        """Calls that all sessions together may have in progress."""
        return CALLS_PER_SESSION_MAX * (self._limits.sessions_max + OPERATOR_SESSIONS_MAX)

    def usage(self) -> SessionUsage:
        """What the sessions hold now."""
        sessions = self._by_token.values()
        return SessionUsage(
            session_count=self.session_count,
            arenas_used_bytes=self._places.arenas_bytes,
            arenas_capacity_bytes=self._limits.arenas_bytes_max,
            lease_count=sum(len(session.leases) for session in sessions),
            reads_in_flight_count=sum(session.arena_use.read_count for session in sessions),
        )

    async def open(
        self,
        grant: Grant,
        *,
        client_name: str,
        arena_bytes: int,
        kind: SessionKind = SessionKind.CLIENT,
    ) -> Session:
        """Creates a session with an arena of at least ``arena_bytes``.

        An operator's has the smallest arena, and a place also where engines have taken all.
        Sessions that are being closed still count against the limits, because their
        memory does. Raises RefusedError. One that is cancelled stops to make the arena, which
        counts until it is given back.
        """
        arena_bytes = align_up(arena_bytes)
        self._check_limits(arena_bytes)
        places = self._take_place(kind, arena_bytes)
        abandoned = threading.Event()
        making = asyncio.ensure_future(
            asyncio.to_thread(
                _make_channel,
                arena_bytes,
                huge_pages=grant.huge_pages,
                is_abandoned=abandoned.is_set,
            )
        )
        try:
            arena, bell = await asyncio.shield(making)
        except asyncio.CancelledError:
            abandoned.set()
            making.add_done_callback(lambda made: _discard(made, places, arena_bytes))
            raise
        except BaseException as error:
            places.give_back(arena_bytes)
            # Threads that cannot be started are a RuntimeError.
            if isinstance(error, OSError | RuntimeError):
                refuse(
                    Reason.LIMIT_EXCEEDED,
                    f"the system has no memory for an arena of {arena_bytes} bytes: "
                    f"{getattr(error, 'strerror', error)}; ask for less",
                )
            raise
        identity = SessionIdentity(
            session_id=self._next_id,
            token=secrets.token_urlsafe(TOKEN_BYTES),
            grant=grant,
            client_name=client_name,
            kind=kind,
        )
        self._next_id += 1
        self._taken[identity.session_id] = places
        session = Session(identity, arena=arena, bell=bell, cancel=self._cancel)
        self._by_token[identity.token] = session
        return session

    def find(self, token: str) -> Session:
        """The open session of ``token``; raises RefusedError."""
        if self._draining:
            refuse(Reason.DRAINING, "the daemon is shutting down; connect again later")
        session = self._by_token.get(token)
        if session is None:
            refuse(Reason.TOKEN_UNKNOWN, "the token belongs to no open session; connect again")
        return session

    async def close(self, session: Session) -> None:
        """Ends a session: leases, pins and reads at once, memory when nothing uses it.

        Goes on when it is cancelled.
        """
        if self._by_token.pop(session.identity.token, None) is None:
            return
        await _kept(self._closing, self._close(session))

    async def _close(self, session: Session) -> None:
        try:
            session.begin_close()
            await self.give_back(session.leases.clear())
        finally:
            await self._release(session)

    async def _release(self, session: Session) -> None:
        # Transfers end on threads that know no event loop.
        while not session.is_idle():  # noqa: ASYNC110
            await asyncio.sleep(CLOSE_POLL_S)
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._ends, self._end, session.identity.session_id)
        finally:
            # Whatever went wrong there, nothing uses the memory any more.
            session.release()
            self._taken.pop(session.identity.session_id).give_back(session.arena.byte_count)

    def drain(self) -> None:
        """Refuses new sessions and calls from now on."""
        self._draining = True

    async def close_all(self) -> None:
        """Ends every session."""
        await asyncio.gather(*map(self.close, tuple(self._by_token.values())))

    async def shut_down(self) -> None:
        """Ends the threads, when every session that was being ended is over and every pin back.

        Nothing may come any more: no session is open, and no call in progress.
        """
        while pending := self._closing | self._returning:
            await asyncio.wait(pending)
        self._ends.shutdown()
        self._unpinning.shutdown()

    async def expire_leases(self) -> None:
        """Returns the pins of leases that are due, for ever."""
        while True:
            await asyncio.sleep(TICK_S)
            await self.tick(time.monotonic())

    async def tick(self, now: float) -> None:
        """Ends the leases that are due at ``now``, and what reads have waited for too long."""
        for session in tuple(self._by_token.values()):
            await self.give_back(session.leases.expire(now))
            if session.arena_use.has_reads_to_give_up():
                await self._give_up_reads(session.arena_use)

    async def _give_up_reads(self, arena_use: ArenaUse) -> None:
        """A fault there may cost this session its reads, and must not keep leases from ending."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._unpinning, arena_use.give_up_reads, self._give_up)
        except Exception:
            LOGGER.exception("late reads of a session cannot be given up")

    async def give_back(self, leases: Iterable[Lease]) -> None:
        """Returns the pins of leases that have ended: all of them, also when it is cancelled."""
        await _kept(self._returning, self._give_back_pins(leases))

    async def _give_back_pins(self, leases: Iterable[Lease]) -> None:
        loop = asyncio.get_running_loop()
        for lease in leases:
            if len(lease.chunks) <= SLICE_ITEMS:
                self._unpin(lease.chunks)
            else:
                await loop.run_in_executor(self._unpinning, self._unpin_many, lease.chunks)

    def _unpin_many(self, chunks: Sequence[ChunkId]) -> None:
        for part in TURNSTILE.parts(chunks):
            self._unpin(part)

    def _take_place(self, kind: SessionKind, arena_bytes: int) -> Places:
        """Where a session counts; raises RefusedError. Operators have places of their own last."""
        try:
            self._places.take(arena_bytes)
        except RefusedError:
            if kind is not SessionKind.OPERATOR:
                raise
            self._operators_places.take(arena_bytes)
            return self._operators_places
        return self._places

    def _check_limits(self, arena_bytes: int) -> None:
        limits = self._limits
        if self._draining:
            refuse(Reason.DRAINING, "the daemon is shutting down; connect again later")
        if arena_bytes > limits.arena_bytes_max:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"an arena of {arena_bytes} bytes is larger than server.arena_bytes_max "
                f"({limits.arena_bytes_max}); ask for less or raise it",
            )


def _discard(made: asyncio.Future[tuple[Arena, Bell]], places: Places, arena_bytes: int) -> None:
    """What was made for nobody is given back."""
    if not made.cancelled() and made.exception() is None:
        arena, bell = made.result()
        bell.close()
        arena.close()
    places.give_back(arena_bytes)


async def _kept(kept: set[asyncio.Future[None]], work: Coroutine[None, None, None]) -> None:
    """Waits for work that is among the ``kept`` until it is done, also when this is cancelled."""
    task = asyncio.ensure_future(work)
    kept.add(task)
    task.add_done_callback(kept.discard)
    await asyncio.shield(task)


def _make_channel(
    arena_bytes: int, *, huge_pages: bool, is_abandoned: Callable[[], bool]
) -> tuple[Arena, Bell]:
    """What a session shares with its client.

    Raises OSError, or AbandonedError, and leaves nothing behind.
    """
    bell = Bell()
    try:
        return Arena(arena_bytes, huge_pages=huge_pages, is_abandoned=is_abandoned), bell
    except BaseException:
        bell.close()
        raise
