"""Connections to the gRPC socket: each user of the machine has a fair share of them.

gRPC closes connections beyond a total (``grpc.max_allowed_incoming_connections``) and knows no
users: one that opens as many as there may be would keep all others out. It tells nobody of its
connections either. So they are looked for among the descriptors of this process, and what is too
much is shut down, which gRPC takes for a client that has left.
"""

import logging
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from kvstored.server.connections import ConnectionShares, LogPause
from kvstored.server.peer import peer_credentials

LOGGER = logging.getLogger(__name__)
LOOK_S = 1.0
"""From one look to the next."""
LOOK_AGAIN_S = 0.05
"""The same while somebody opens more than its share."""
_DESCRIPTORS = "/proc/self/fd"


class _Connection(NamedTuple):
    """A socket of this process: a descriptor may be used again, the number of a socket is not."""

    descriptor: int
    inode: int


class FairConnections:
    """Connections to a listening Unix socket, at most ``count_max``. One thread looks for them.

    ``count`` and ``ended_count`` may be read by any thread.
    """

    def __init__(self, path: Path, count_max: int) -> None:
        self._path = os.fspath(path)
        self._shares: ConnectionShares[int, _Connection] = ConnectionShares(count_max)
        self._seen: set[_Connection] = set()
        self._log_pause = LogPause()
        self.ended_count = 0
        """Connections that were ended since the start, because their user had too many."""

    @property
    def count(self) -> int:
        """Connections at the last look, without those that were ended."""
        return len(self._shares)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Looks again and again while the body runs."""
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(stop,), name="kvstored-connections", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def look(self) -> int:
        """Ends connections of users that have too many; returns how many."""
        found = set(_sockets())
        for gone in self._seen - found:
            self._shares.remove(gone)
        ended = 0
        for new in sorted(found - self._seen):
            user = self._user_of(new)
            if user is None:
                continue
            ending = self._shares.add(user, new)
            if ending is not None:
                ended += self._end(ending)
        self._seen = found
        self.ended_count += ended
        return ended

    def _run(self, stop: threading.Event) -> None:
        pause_s = LOOK_S
        while not stop.wait(pause_s):
            try:
                pause_s = LOOK_AGAIN_S if self.look() else LOOK_S
            except OSError as error:
                # Out of descriptors for a moment, by sessions.
                LOGGER.warning("cannot look at the connections to %s: %s", self._path, error)

    def _user_of(self, connection: _Connection) -> int | None:
        """The user at the other end; None where it is no connection to the path."""
        with suppress(OSError), _copied(connection) as copy:
            if copy is not None and self._is_ours(copy):
                return peer_credentials(copy).uid
        return None

    def _is_ours(self, copy: socket.socket) -> bool:
        return (
            copy.family == socket.AF_UNIX
            and copy.getsockname() == self._path
            and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        )

    def _end(self, connection: _Connection) -> bool:
        """Whether a connection was there to be ended."""
        with suppress(OSError), _copied(connection) as copy:
            if copy is not None:
                user = peer_credentials(copy).uid
                copy.shutdown(socket.SHUT_RDWR)
                self._log(user)
                return True
        return False

    def _log(self, user: int) -> None:
        if self._log_pause.is_over(time.monotonic()):
            LOGGER.warning(
                "%d connections to %s are open, as many as there may be; those of user %d, who "
                "has the most, are ended first: look at its processes",
                self.count,
                self._path,
                user,
            )


def _sockets() -> Iterator[_Connection]:
    """All sockets of this process."""
    with os.scandir(_DESCRIPTORS) as entries:
        descriptors = [int(entry.name) for entry in entries]
    for descriptor in descriptors:
        # Others close theirs meanwhile.
        with suppress(OSError):
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode):
                yield _Connection(descriptor, status.st_ino)


@contextmanager
def _copied(connection: _Connection) -> Iterator[socket.socket | None]:
    """A copy that stays this socket when its owner closes the descriptor; None where it did."""
    copy = os.dup(connection.descriptor)
    status = os.fstat(copy)
    if not stat.S_ISSOCK(status.st_mode):
        # The descriptor is a file by now. To close a copy would end the locks of this process on
        # that file, the index perhaps: it stays open, which next to never happens.
        yield None
        return
    with socket.socket(fileno=copy) as found:
        yield found if status.st_ino == connection.inode else None
