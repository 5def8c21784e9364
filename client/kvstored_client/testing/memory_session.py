"""A session of a store in memory, as the store sees it."""

import os
import socket
import threading
import weakref
from dataclasses import dataclass

from kvstored_client.testing.refusal import refuse
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


@dataclass(frozen=True, slots=True)
class MemoryLease:
    """Pinned keys, and the time of the store's clock at which they are free again."""

    keys: tuple[bytes, ...]
    expires_at: float


class MemorySession:
    """The arena, layouts and leases of one client. Thread-safe as far as the end goes.

    ``connection`` is the store's end of the session socket, ``eventfd`` a descriptor of its
    own; both are closed when the session ends, or with its store.
    """

    def __init__(
        self, session_id: int, arena: memoryview, *, connection: socket.socket, eventfd: int
    ) -> None:
        self.session_id = session_id
        self.arena = arena
        self.layouts: dict[bytes, StateLayout] = {}
        self.leases: dict[int, MemoryLease] = {}
        self.waiting: dict[str, tuple[int, tuple[bytes, ...]]] = {}
        """By name, who waits in the engine's queue: place and keys."""
        self.queue_version = 0
        self._connection = connection
        self._eventfd = eventfd
        self._close = weakref.finalize(self, _close_descriptors, connection, eventfd)
        self._lock = threading.Lock()
        self._has_ended = False
        connection.setblocking(False)

    @property
    def is_ended(self) -> bool:
        """Whether the store knows that the session has ended; does not look."""
        return self._has_ended

    @property
    def is_left(self) -> bool:
        """Looks whether the client has gone away."""
        with self._lock:
            try:
                return self._has_ended or not self._connection.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            except OSError:
                return True

    def layout(self, layout_id: bytes) -> StateLayout:
        """A layout that was registered; raises RefusedError for another."""
        layout = self.layouts.get(layout_id)
        if layout is None:
            refuse(Reason.LAYOUT_UNKNOWN, "the layout was not registered in this session")
        return layout

    def ring(self) -> None:
        """Reports to the client that a board has changed."""
        with self._lock:
            if not self._has_ended:
                os.eventfd_write(self._eventfd, 1)

    def end(self) -> None:
        """Ends the session: the client sees end of file. A second call does nothing."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
            self._close()
        self.leases.clear()
        self.waiting.clear()


def _close_descriptors(connection: socket.socket, eventfd: int) -> None:
    connection.close()
    os.close(eventfd)
