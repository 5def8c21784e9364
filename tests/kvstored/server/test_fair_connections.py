"""Connections to the gRPC socket are found among all descriptors, and shared among users."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvstored.server import fair_connections
from kvstored.server.access import Credentials
from kvstored.server.fair_connections import FairConnections

COUNT_MAX = 4


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listening(path: Path, opened: ExitStack) -> socket.socket:
    listener = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    listener.bind(str(path))
    listener.listen(64)
    return listener


def connected(
    listener: socket.socket, opened: ExitStack, count: int
) -> list[tuple[socket.socket, socket.socket]]:
    """Both ends of connections, the client's first."""
    pairs = []
    for _ in range(count):
        client = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        client.connect(listener.getsockname())
        pairs.append((client, opened.enter_context(listener.accept()[0])))
    return pairs


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def test_only_connections_to_the_path_count(tmp_path: Path, opened: ExitStack) -> None:
    ours, others = (listening(tmp_path / name, opened) for name in ("ours", "others"))
    opened.enter_context((tmp_path / "file").open("w"))
    connected(others, opened, 2 * COUNT_MAX)
    connections = FairConnections(tmp_path / "ours", COUNT_MAX)
    assert (connections.look(), connections.count) == (0, 0)
    pairs = connected(ours, opened, 2)
    assert (connections.look(), connections.count) == (0, 2)
    pairs[0][1].close()
    assert (connections.look(), connections.count) == (0, 1)


def test_one_user_does_not_keep_others_from_the_grpc_socket(
    tmp_path: Path, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: gRPC knows no users: who had all connections that there may be kept all others out."""
    users: dict[int, int] = {}

    def credentials(connection: socket.socket) -> Credentials:
        return Credentials(pid=1, uid=users[_number(connection)], gid=1)

    monkeypatch.setattr(fair_connections, "peer_credentials", credentials)
    listener = listening(tmp_path / "ours", opened)
    connections = FairConnections(tmp_path / "ours", COUNT_MAX)

    def come(user: int, count: int) -> list[socket.socket]:
        pairs = connected(listener, opened, count)
        users.update((_number(own), user) for _, own in pairs)
        return [client for client, _ in pairs]

    engine = come(7, 1)
    assert connections.look() == 0
    greedy = come(8, 10)
    assert connections.look() == 7
    assert sum(map(is_open, greedy)) == COUNT_MAX - 1
    more = come(8, 3)
    assert connections.look() == 3
    assert not any(map(is_open, more))
    late = come(9, 1)
    assert connections.look() == 1
    assert all(map(is_open, engine + late))
    assert sum(map(is_open, greedy)) == COUNT_MAX - 2
    assert (connections.count, connections.ended_count) == (COUNT_MAX, 11)


def test_what_the_owner_has_closed_is_left_alone(tmp_path: Path, opened: ExitStack) -> None:
    """A descriptor that is another socket by now is not shut down in its place."""
    listener = listening(tmp_path / "ours", opened)
    connections = FairConnections(tmp_path / "ours", COUNT_MAX)
    ((_, own),) = connected(listener, opened, 1)
    connections.look()
    (known,) = connections._shares._peers
    number = own.fileno()
    own.close()
    # The lowest free number is given next.
    first, second = (opened.enter_context(one) for one in socket.socketpair())
    assert number in {first.fileno(), second.fileno()}
    assert not connections._end(known)
    second.sendall(b"x")
    assert first.recv(1) == b"x"


def _number(connection: socket.socket) -> int:
    return os.fstat(connection.fileno()).st_ino
