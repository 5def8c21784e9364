"""Monitoring of a real daemon: over TCP and a Unix socket, in every phase."""

import http.client
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kvstored.config_values import TcpAddress
from kvstored.metrics.endpoint import endpoint
from kvstored.metrics.listener import listener_of
from kvstored.metrics.view import DaemonView
from kvstored.server.listen import ListenError, SocketPermissions
from kvstored_client import Ack, Client
from tests.kvstored_client.chunk_calls import ARENA_BYTES, store
from tests.support.daemon import DaemonProcess
from tests.support.web import UnixConnection, answer

PERMISSIONS = SocketPermissions(mode=0o600, gid=None)
LOCAL = TcpAddress("127.0.0.1", 0)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that is asked over a Unix socket."""
    place = {"metrics": {"listen": "./metrics.sock"}}
    with DaemonProcess(tmp_path, overrides=place) as daemon:
        yield daemon


def ask(daemon: DaemonProcess, path: str) -> tuple[int, str]:
    return answer(UnixConnection(daemon.folder / "metrics.sock"), path)


def test_numbers_of_a_daemon(watched: DaemonProcess) -> None:
    with Client(watched.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        store(client, ack=Ack.DURABLE)
        status, text = ask(watched, "/metrics")
    assert status == 200
    lines = text.splitlines()
    assert 'kvstored_state{state="serving"} 1.0' in lines
    assert 'kvstored_chunks{tier="device"} 5.0' in lines
    assert "kvstored_stored_chunks_total 5.0" in lines
    assert 'kvstored_call_duration_seconds_count{verb="Put"} 1.0' in lines
    assert "kvstored_sessions 1.0" in lines


def test_life_and_readiness(watched: DaemonProcess) -> None:
    assert ask(watched, "/healthz") == (200, "alive\n")
    assert ask(watched, "/readyz") == (200, "serving\n")
    assert ask(watched, "/nothing")[0] == 404


def test_the_socket_goes_with_the_daemon(watched: DaemonProcess) -> None:
    assert (watched.folder / "metrics.sock").is_socket()
    assert watched.terminate() == 0
    assert not (watched.folder / "metrics.sock").exists()


def test_tenants_could_read_the_names_of_others(watched: DaemonProcess, tmp_path: Path) -> None:
    """Bug: the socket had the permissions of the session sockets, which tenants may use."""
    path = watched.folder / "metrics.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    assert watched.terminate() == 0
    group = os.getgid()
    watched.configure({"metrics": {"listen": "./metrics.sock", "socket_group": group}})
    watched.start()
    assert path.stat().st_mode & 0o777 == 0o660
    assert path.stat().st_gid == group


def test_without_an_address_nothing_listens(shared_daemon: DaemonProcess) -> None:
    assert not (shared_daemon.folder / "metrics.sock").exists()


def test_a_daemon_that_does_not_serve_yet_or_any_more() -> None:
    view = DaemonView()
    listener = listener_of(LOCAL, PERMISSIONS)
    port = listener.getsockname()[1]
    with endpoint(listener, view):

        def ask_here(path: str) -> tuple[int, str]:
            return answer(http.client.HTTPConnection("127.0.0.1", port, timeout=60), path)

        assert ask_here("/readyz") == (503, "recovering\n")
        assert ask_here("/healthz") == (200, "alive\n")
        assert 'kvstored_state{state="recovering"} 1.0' in ask_here("/metrics")[1]
        view.begin_draining()
        assert ask_here("/readyz") == (503, "draining\n")


def test_an_address_that_is_taken() -> None:
    with closing(listener_of(LOCAL, PERMISSIONS)) as first:
        taken = TcpAddress("127.0.0.1", first.getsockname()[1])
        with pytest.raises(ListenError, match=r"correct metrics\.listen"):
            listener_of(taken, PERMISSIONS)
