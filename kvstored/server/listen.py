"""Unix sockets to listen on: bound here, or handed over by systemd."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BACKLOG = 4096
"""Connections that wait to be accepted; the system lowers it to its net.core.somaxconn."""
_FIRST_PASSED_DESCRIPTOR = 3
_FOLDER_MODE = 0o755


class ListenError(OSError):
    """A socket cannot be listened on; one sentence names it and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketPermissions:
    """Mode and group (None: the daemon's own) of socket files."""

    mode: int
    gid: int | None


def passed_listener(environment: Mapping[str, str], *, pid: int) -> socket.socket | None:
    """The socket that systemd listens on for this process, if there is one."""
    if environment.get("LISTEN_PID") != str(pid):
        return None
    if environment.get("LISTEN_FDS") != "1":
        raise ListenError(
            f"systemd passed {environment.get('LISTEN_FDS')} sockets; kvstored.socket must "
            "have exactly one ListenStream"
        )
    listener = socket.socket(fileno=_FIRST_PASSED_DESCRIPTOR)
    if listener.family != socket.AF_UNIX or listener.type != socket.SOCK_STREAM:
        listener.close()
        raise ListenError(
            "systemd passed a socket that is no Unix stream socket; correct kvstored.socket"
        )
    os.set_inheritable(listener.fileno(), False)
    # systemd may have given it a shorter queue.
    listener.listen(BACKLOG)
    return listener


def bound_listener(path: Path, permissions: SocketPermissions) -> socket.socket:
    """Binds ``path`` and listens; replaces what a killed daemon left behind.

    Raises ListenError, also when another daemon listens there.
    """
    prepare_path(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with closed_umask():
            listener.bind(os.fspath(path))
        open_to(path, permissions)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(
            f"cannot listen on {path}: {error.strerror}; correct its folder or group"
        ) from error
    return listener


def prepare_path(path: Path) -> None:
    """Creates the folder of a socket and removes a dead one; raises ListenError."""
    try:
        path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        is_taken = path.is_socket() and is_alive(path)
        if path.is_socket() and not is_taken:
            path.unlink()
    except OSError as error:
        raise ListenError(
            f"cannot prepare {path}: {error.strerror}; correct its folder or group"
        ) from error
    if is_taken:
        raise ListenError(
            f"another process listens on {path}; stop it or choose another path in [server]"
        )


def is_alive(path: Path) -> bool:
    """Whether a process listens on the socket file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            # It listens: its queue of connections is full.
            return True
    return True


def open_to(path: Path, permissions: SocketPermissions) -> None:
    """Gives a socket file its group and then its mode; raises OSError."""
    if permissions.gid is not None:
        os.chown(path, -1, permissions.gid)
    path.chmod(permissions.mode)


@contextmanager
def closed_umask() -> Iterator[None]:
    """Files made in the body are for their owner only until they are opened to others."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
