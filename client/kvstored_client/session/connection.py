"""When to connect, and when to leave an absent daemon alone."""

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kvstored_client.errors import DaemonAbsentError, SessionRefusedError, StoreError
from kvstored_client.session.counters import Counters
from kvstored_client.session.options import Options
from kvstored_client.session.session import OpenSession, Session, open_session
from kvstored_contract.reasons import REFUSED


class Link(Protocol):
    """A session and whatever a facade needs to talk through it."""

    @property
    def session(self) -> Session:
        """The session, alive when the link was made."""

    def retire(self) -> None:
        """Frees what hangs on a session that has ended. Never blocks."""


LinkT = TypeVar("LinkT", bound=Link)


def _tell_nobody(_refusal: SessionRefusedError) -> None:
    pass


class Connection(Generic[LinkT]):
    """The one live link of a client, made again after the daemon's death.

    After an attempt that failed nobody tries again for ``reconnect_interval_s``, so that
    an absent daemon costs a call next to nothing. Thread-safe. In a forked child the
    connection is closed: sessions and gRPC do not survive a fork. One thread connects at a time;
    nobody waits for it but those who want the link.

    A daemon that refuses the session is there: every call meanwhile fails with its sentence.
    ``tell`` is given each refusal whose sentence it was not given since the last session, on the
    thread that connects.
    """

    def __init__(
        self,
        options: Options,
        make_link: Callable[[Session], LinkT],
        counters: Counters,
        *,
        clock: Callable[[], float] = time.monotonic,
        opener: OpenSession = open_session,
        tell: Callable[[SessionRefusedError], None] = _tell_nobody,
    ) -> None:
        self._options = options
        self._make_link = make_link
        self._counters = counters
        self._clock = clock
        self._opener = opener
        self._tell = tell
        self._told: set[str] = set()
        self._refusal: SessionRefusedError | None = None
        self._connecting = threading.Lock()
        """Held for a whole attempt. What follows it is held for moments only."""
        self._lock = threading.Lock()
        self._link: LinkT | None = None
        self._failed_at: float | None = None
        self._closed = False
        self.namespace: str | None = None
        """The server's namespace, narrowed by the salt; None until a daemon was reached."""
        _connections.add(self)

    def current(self) -> LinkT | None:
        """The link when its session is alive; never blocks."""
        link = self._link
        if self._closed or link is None or not link.session.presence.check():
            return None
        return link

    def live(self) -> LinkT:
        """As ``current``, but raises StoreError when there is none; never blocks."""
        link = self.current()
        if link is None:
            raise self._unserved(f"no session with {self._options.socket}; one must be made")
        return link

    @property
    def refusal(self) -> str:
        """The sentence of a daemon that is there and granted no session; else empty."""
        refusal = self._refusal
        return "" if refusal is None else str(refusal)

    @property
    def due(self) -> bool:
        """Whether ``ensure`` would try to connect instead of refusing at once."""
        if self._closed:
            return False
        failed_at = self._failed_at
        return failed_at is None or self._clock() - failed_at >= self._options.reconnect_interval_s

    def ensure(self) -> LinkT:
        """The live link, connecting when that is due; raises StoreError when there is none."""
        link = self.current()
        if link is not None:
            return link
        if self._closed:
            # Nobody waits here for another thread that connects.
            raise self._closed_error()
        with self._connecting:
            link = self.current()
            if link is not None:
                return link
            if self._closed:
                raise self._closed_error()
            if not self.due:
                raise self._unserved(f"no daemon a moment ago: {self._options.socket}")
            return self._connect()

    def close(self) -> None:
        """Ends the session for good; never waits.

        A session that is granted to a thread which connects meanwhile ends at once.
        """
        with self._lock:
            self._closed = True
            self._refusal = None
            self._drop()

    def _connect(self) -> LinkT:
        with self._lock:
            self._drop()
        try:
            session = self._opener(self._options)
        except StoreError as error:
            self._failed_at = self._clock()
            self._counters.add("connect_failures")
            self._note_refusal(error if isinstance(error, SessionRefusedError) else None)
            raise
        with self._lock:
            if self._closed:
                session.presence.end()
                raise self._closed_error()
            self._counters.add("connects")
            self._failed_at = None
            self._refusal = None
            self._told.clear()
            self.namespace = narrowed(session.namespace, self._options.salt)
            self._link = self._make_link(session)
            return self._link

    def _closed_error(self) -> DaemonAbsentError:
        return DaemonAbsentError(f"the client is closed: {self._options.socket}")

    def _note_refusal(self, refusal: SessionRefusedError | None) -> None:
        with self._lock:
            self._refusal = None if self._closed else refusal
        if refusal is None:
            return
        self._counters.add(f"{REFUSED}{refusal.reason.name}")
        if str(refusal) not in self._told:
            self._told.add(str(refusal))
            self._tell(refusal)

    def _unserved(self, otherwise: str) -> StoreError:
        """Why there is no session: what the daemon said last, or ``otherwise``."""
        refusal = self._refusal
        if refusal is None:
            return DaemonAbsentError(otherwise)
        return SessionRefusedError(str(refusal), reason=refusal.reason, refused=True)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.session.presence.end()
            self._link.retire()
            self._link = None

    def _abandon_in_child(self) -> None:
        # The link object is kept: freeing a gRPC channel in a forked child can hang.
        self._connecting = threading.Lock()
        self._lock = threading.Lock()
        self._closed = True
        if self._link is not None:
            self._link.session.presence.disown()


def narrowed(namespace: str, salt: str) -> str:
    """The namespace of a client's keys: the server's, and the salt if it has one."""
    return f"{namespace}/{salt}" if salt else namespace


_connections: "weakref.WeakSet[Connection[Any]]" = weakref.WeakSet()


def _abandon_all_in_child() -> None:
    for connection in list(_connections):
        connection._abandon_in_child()  # noqa: SLF001 - same class, hook of the process


os.register_at_fork(after_in_child=_abandon_all_in_child)
