"""Connections to the socket of monitoring are bounded."""

import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kvstored.metrics import connections
from kvstored.metrics.endpoint import endpoint
from kvstored.metrics.listener import listener_of
from kvstored.metrics.view import DaemonView
from kvstored.server.connections import METRICS_CONNECTIONS_MAX
from kvstored.server.listen import SocketPermissions
from tests.support.waiting import SOON_S, wait_until
from tests.support.web import get

PERMISSIONS = SocketPermissions(mode=0o600, gid=None)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "m"
    with endpoint(listener_of(path, PERMISSIONS), DaemonView()):
        yield path


def silent(path: Path, opened: ExitStack) -> socket.socket:
    client = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    client.connect(str(path))
    client.setblocking(False)
    return client


def is_open(client: socket.socket) -> bool:
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_connections_that_ask_nothing_took_all_descriptors(path: Path) -> None:
    """Bug: aiohttp takes any number of them, and keeps one that says nothing for ever."""
    with ExitStack() as opened:
        clients = [silent(path, opened) for _ in range(3 * METRICS_CONNECTIONS_MAX)]
        ended = clients[: 2 * METRICS_CONNECTIONS_MAX]
        wait_until(lambda: not any(map(is_open, ended)), within_s=SOON_S)
        assert all(map(is_open, clients[2 * METRICS_CONNECTIONS_MAX :]))
        assert get(path, "/healthz") == (200, "alive\n")


def test_a_peer_with_few_connections_keeps_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = itertools.chain(["prometheus"], itertools.repeat("greedy"))
    monkeypatch.setattr(connections, "_peer_of", lambda *_: next(peers))
    with ExitStack() as opened:
        scraper = silent(path, opened)
        clients = [silent(path, opened) for _ in range(2 * METRICS_CONNECTIONS_MAX)]
        wait_until(lambda: not is_open(clients[METRICS_CONNECTIONS_MAX]), within_s=SOON_S)
        assert is_open(scraper)


def test_what_has_ended_counts_no_more(path: Path) -> None:
    with ExitStack() as opened:
        first = silent(path, opened)
        for _ in range(2 * METRICS_CONNECTIONS_MAX):
            assert get(path, "/healthz")[0] == 200
        assert is_open(first)
