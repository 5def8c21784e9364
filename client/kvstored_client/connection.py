"""When to connect, and when to leave an absent daemon alone."""

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from kvstored_client.counters import Counters
from kvstored_client.errors import DaemonAbsentError, StoreError
from kvstored_client.options import Options
from kvstored_client.session import OpenSession, Session, open_session


class Link(Protocol):
    """A session and whatever a facade needs to talk through it."""

    @property
    def session(self) -> Session:
        """The session, alive when the link was made."""

    def retire(self) -> None:
        """Frees what hangs on a session that has ended. Never blocks."""


LinkT = TypeVar("LinkT", bound=Link)


class Connection(Generic[LinkT]):
    """The one live link of a client, made again after the daemon's death.

    After an attempt that failed nobody tries again for ``reconnect_interval_s``, so that
    an absent daemon costs a call next to nothing. Thread-safe. In a forked child the
    connection is closed: sessions and gRPC do not survive a fork.
    """

    def __init__(
        self,
        options: Options,
        make_link: Callable[[Session], LinkT],
        counters: Counters,
        *,
        clock: Callable[[], float] = time.monotonic,
        opener: OpenSession = open_session,
    ) -> None:
        self._options = options
        self._make_link = make_link
        self._counters = counters
        self._clock = clock
        self._opener = opener
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
        """As ``current``, but raises DaemonAbsentError when there is none; never blocks."""
        link = self.current()
        if link is None:
            raise DaemonAbsentError(f"no session with {self._options.socket}; one must be made")
        return link

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
        with self._lock:
            link = self.current()
            if link is not None:
                return link
            if not self.due:
                state = "the client is closed" if self._closed else "no daemon a moment ago"
                raise DaemonAbsentError(f"{state}: {self._options.socket}")
            self._drop()
            return self._connect()

    def close(self) -> None:
        """Ends the session for good."""
        with self._lock:
            self._closed = True
            self._drop()

    def _connect(self) -> LinkT:
        try:
            session = self._opener(self._options)
        except StoreError:
            self._failed_at = self._clock()
            self._counters.add("connect_failures")
            raise
        self._counters.add("connects")
        self._failed_at = None
        self.namespace = narrowed(session.namespace, self._options.salt)
        self._link = self._make_link(session)
        return self._link

    def _drop(self) -> None:
        if self._link is not None:
            self._link.session.presence.end()
            self._link.retire()
            self._link = None

    def _abandon_in_child(self) -> None:
        # The link object is kept: freeing a gRPC channel in a forked child can hang.
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
