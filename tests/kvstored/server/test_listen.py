"""Sockets to listen on."""

import contextlib
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kvstored.server.listen import (
    ListenError,
    SocketPermissions,
    bound_listener,
    passed_listener,
)

PERMISSIONS = SocketPermissions(mode=0o660, gid=None)


def test_mode_and_missing_folder(tmp_path: Path) -> None:
    path = tmp_path / "new" / "socket"
    with bound_listener(path, SocketPermissions(mode=0o640, gid=os.getgid())):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert path.stat().st_gid == os.getgid()


def test_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bound_listener(path, PERMISSIONS).close()
    assert path.is_socket()
    with bound_listener(path, PERMISSIONS), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with bound_listener(path, PERMISSIONS):
        with pytest.raises(ListenError, match="another process"):
            bound_listener(path, PERMISSIONS)
        assert path.is_socket()


def test_a_living_one_with_a_full_queue_is_not_replaced(tmp_path: Path) -> None:
    """Bug: the start waited for ever for a daemon that accepted nobody."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(str(path))
        listener.listen(0)
        client.connect(str(path))
        with pytest.raises(ListenError, match="another process"):
            bound_listener(path, PERMISSIONS)


def connections_taken(path: Path, most: int) -> int:
    """How many connections fit into the queue of a socket that accepts none."""
    with contextlib.ExitStack() as clients:
        for count in range(most):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            try:
                client.connect(str(path))
            except BlockingIOError:
                return count
    return most


def test_a_burst_of_connections_finds_room(tmp_path: Path) -> None:
    """Bug: a queue of 128 was full when as many engines started at once."""
    system_max = int(Path("/proc/sys/net/core/somaxconn").read_text())
    burst = min(300, system_max)
    path = tmp_path / "socket"
    with bound_listener(path, PERMISSIONS):
        assert connections_taken(path, burst) == burst


def test_other_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("precious")
    with pytest.raises(ListenError, match="cannot listen"):
        bound_listener(path, PERMISSIONS)
    assert path.read_text() == "precious"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ListenError, match="cannot prepare"):
        bound_listener(tmp_path / "file" / "socket", PERMISSIONS)


def test_nothing_was_passed() -> None:
    assert passed_listener({}, pid=5) is None
    assert passed_listener({"LISTEN_PID": "6", "LISTEN_FDS": "1"}, pid=5) is None


def test_only_one_socket_may_be_passed() -> None:
    with pytest.raises(ListenError, match="exactly one"):
        passed_listener({"LISTEN_PID": "5", "LISTEN_FDS": "2"}, pid=5)


CHILD = """
import os, sys
from kvstored.server.listen import ListenError, passed_listener
os.dup2(int(sys.argv[1]), 3)
try:
    with passed_listener({"LISTEN_PID": "5", "LISTEN_FDS": "1"}, pid=5) as listener:
        print(listener.getsockname())
except ListenError as error:
    print(error)
"""


def child_says(passed: socket.socket) -> str:
    result = subprocess.run(
        [sys.executable, "-c", CHILD, str(passed.fileno())],
        pass_fds=[passed.fileno()],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def test_the_passed_socket_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with bound_listener(path, PERMISSIONS) as listener:
        assert child_says(listener) == str(path)


def test_a_passed_socket_gets_a_long_queue(tmp_path: Path) -> None:
    system_max = int(Path("/proc/sys/net/core/somaxconn").read_text())
    burst = min(300, system_max)
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(1)
        assert connections_taken(path, burst) < burst
        assert child_says(listener) == str(path)
        while True:
            listener.setblocking(False)
            try:
                listener.accept()[0].close()
            except BlockingIOError:
                break
        assert connections_taken(path, burst) == burst


def test_a_passed_socket_of_another_kind_is_refused() -> None:
    with socket.socket(socket.AF_INET) as passed:
        assert "no Unix stream socket" in child_says(passed)
