"""Whether the daemon is there, and whether it has something to report.

Invariants: ``lost`` becomes true once and stays. The descriptors are closed only when
nobody refers to the presence any more, so that no poller can meet a reused number.
"""

import os
import select
import socket
import weakref


class Presence:
    """The two descriptors that a session keeps: its socket and the eventfd of the boards.

    Neither side sends on the socket after the handshake, so that anything readable on
    it is the end of the session. Thread-safe, but only one caller at a time may be in
    ``listen`` or ``drain``.
    """

    __slots__ = ("__weakref__", "_close", "_lost", "_socket", "eventfd")

    def __init__(self, connection: socket.socket, eventfd: int) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._lost = False
        self.eventfd = eventfd
        self._close = weakref.finalize(self, _close_descriptors, connection, eventfd)

    @property
    def lost(self) -> bool:
        """Whether the session is known to have ended; does not look."""
        return self._lost

    @property
    def socket_descriptor(self) -> int:
        """The session socket's number, for a poller."""
        return self._socket.fileno()

    def check(self) -> bool:
        """Looks whether the session is alive: one system call that never blocks."""
        if not self._lost:
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
            except OSError:
                pass
            self.end()
        return False

    def end(self) -> None:
        """Ends the session; the daemon then returns everything it held. Wakes every poller."""
        self._lost = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The other side closed first.
            return

    def listen(self, timeout_s: float | None) -> None:
        """Blocks until the daemon reports something, the session ends or the time is up."""
        poll = select.poll()
        poll.register(self.eventfd, select.POLLIN)
        poll.register(self._socket, select.POLLIN)
        for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1000):
            if descriptor == self.eventfd:
                self.drain()
            else:
                self.check()

    def drain(self) -> None:
        """Takes note of all reports so far; call it only when the eventfd is readable."""
        os.eventfd_read(self.eventfd)

    def disown(self) -> None:
        """Closes this process's copies without ending the session: for a forked child."""
        self._lost = True
        self._close()


def _close_descriptors(connection: socket.socket, eventfd: int) -> None:
    connection.close()
    os.close(eventfd)
