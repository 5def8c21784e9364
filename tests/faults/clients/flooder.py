"""A user that opens connections without end: ``python -m tests.faults.clients.flooder PATH UID N``.

Each says that it speaks HTTP/2, and nothing more. Those that the daemon ends are opened again,
until standard input ends. Says when N were tried.
"""

import contextlib
import os
import select
import socket
import sys

HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
PAUSE_S = 0.01


def connected(path: str) -> socket.socket | None:
    """A connection, or None where there was none to be had."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(1)
        connection.connect(path)
        connection.sendall(HELLO)
        connection.setblocking(False)
    except OSError:
        connection.close()
        return None
    return connection


def is_open(connection: socket.socket) -> bool:
    """Whether the other end has not closed it."""
    with contextlib.suppress(BlockingIOError):
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
        connection.close()
        return False
    return True


def flood(path: str, count: int) -> None:
    """Holds as many connections as it gets, at most ``count``."""
    held: list[socket.socket] = []
    is_told = False
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        held = [one for one in held if is_open(one)]
        wanted = count - len(held)
        held += [one for _ in range(wanted) if (one := connected(path)) is not None]
        if not is_told:
            is_told = True
            sys.stdout.write("tried\n")
            sys.stdout.flush()


if __name__ == "__main__":
    os.setgroups([])
    os.setresgid(*[int(sys.argv[2])] * 3)
    os.setresuid(*[int(sys.argv[2])] * 3)
    flood(sys.argv[1], int(sys.argv[3]))
