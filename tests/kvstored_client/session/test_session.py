import errno
import gc
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvstored_client.errors import DaemonAbsentError, DaemonFaultError, SessionRefusedError
from kvstored_client.session import limits
from kvstored_client.session import session as session_module
from kvstored_client.session.options import Options
from kvstored_client.session.session import open_session
from kvstored_client.testing import MemoryDaemon, MemoryStore
from kvstored_contract import handshake, session_socket
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2
from tests.support.descriptors import open_descriptors
from tests.support.waiting import PATIENCE_S


def options(path: Path) -> Options:
    return Options(socket=path, arena_bytes=8192, name="engine")


def test_the_handshake_maps_the_arena(daemon: MemoryDaemon) -> None:
    session = open_session(options(daemon.socket_path))
    assert daemon.store.requests[0] == session_pb2.Hello(
        protocol_version=PROTOCOL_VERSION, client_name="engine", arena_bytes=8192
    )
    assert (session.epoch, session.namespace, session.token) == (1, "default", "token-1-1")
    region = session.arena.allocate(4096)
    assert region is not None
    region.view[:3] = b"abc"
    assert bytes(daemon.store.sessions[session.token].arena[:3]) == b"abc"
    assert not os.get_inheritable(session.presence.eventfd)
    assert session.presence.check()
    session.presence.end()
    assert not region.is_current
    assert bytes(region.view[:3]) == b"abc"


class SlowDaemon(MemoryDaemon):
    """Makes an arena for ``making_s`` seconds, and does not wait longer for its client."""

    making_s = 0.0

    def _admit(self, connection: socket.socket, arena_bytes: int) -> None:
        has_left = select.select([connection], [], [], self.making_s)[0]
        if has_left:
            connection.close()
        else:
            super()._admit(connection, arena_bytes)


@pytest.mark.parametrize("is_large", [True, False])
def test_large_arena_cannot_connect(
    memory: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Bug: an arena of 16 GiB takes 13 s to make, and a client waited 10 s for any."""
    patience_s = PATIENCE_S if is_large else 0.001
    monkeypatch.setattr(limits, "CONNECT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(session_module, "CONNECT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(limits, "ARENA_BYTES_PER_S_LEAST", 8192 / patience_s)
    with SlowDaemon(memory, tmp_path) as daemon:
        daemon.making_s = 0.5 if is_large else PATIENCE_S
        if is_large:
            assert open_session(options(daemon.socket_path)).presence.check()
        else:
            with pytest.raises(
                DaemonAbsentError, match="no session with an arena of 8192 bytes within"
            ):
                open_session(options(daemon.socket_path))


def test_time_to_connect_follows_from_the_size() -> None:
    gib = 1 << 30
    assert limits.welcome_timeout_s(4096) == pytest.approx(limits.CONNECT_TIMEOUT_S, abs=0.1)
    assert limits.welcome_timeout_s(4 * gib) == limits.CONNECT_TIMEOUT_S + 16
    assert limits.welcome_timeout_s(16 * gib) == limits.CONNECT_TIMEOUT_S + 64


def test_nobody_listens(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(DaemonAbsentError, match=r"no daemon at .*none\.sock"):
        open_session(options(tmp_path / "none.sock"))
    assert not open_descriptors() - before


def test_a_process_without_a_descriptor_left_heard_of_it_as_of_no_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the error of the system reached the engine, at every call."""

    def refuse(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket, "socket", refuse)
        with pytest.raises(DaemonAbsentError, match="Too many open files"):
            open_session(options(tmp_path / "none.sock"))


def test_a_full_queue_of_connections_is_no_absent_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: in a burst of clients those that met EAGAIN went without a store."""
    path = tmp_path / "busy.sock"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(path))
        listener.listen(0)
        first.connect(str(path))

        def serve() -> None:
            listener.accept()[0].close()
            connection, _ = listener.accept()
            with connection:
                session_socket.receive(connection, session_pb2.Hello)
                connection.sendall(handshake.frame(session_pb2.Welcome(refusal="seen")))

        serving = threading.Thread(target=serve)

        def serve_from_now_on(seconds: float) -> None:
            if not serving.is_alive():
                serving.start()
            time.sleep(seconds)

        # The daemon comes to its queue when that has refused the client once.
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=serve_from_now_on)
        monkeypatch.setattr(session_socket, "time", clock)
        with pytest.raises(SessionRefusedError, match="seen"):
            open_session(options(path))
        serving.join()


def test_a_refused_session_tells_the_daemons_sentence(daemon: MemoryDaemon) -> None:
    daemon.store.faults.session_refusal = "too many sessions; close one"
    with pytest.raises(SessionRefusedError, match="too many sessions; close one") as caught:
        open_session(options(daemon.socket_path))
    assert caught.value.reason is Reason.LIMIT_EXCEEDED


class WrongDaemon(MemoryDaemon):
    """Passes only so many descriptors, and announces a larger arena than it passes."""

    descriptor_count = 2
    announced_extra_bytes = 0

    def _send(
        self, connection: socket.socket, welcome: session_pb2.Welcome, descriptors: Sequence[int]
    ) -> None:
        welcome.arena_bytes += self.announced_extra_bytes
        super()._send(connection, welcome, descriptors[: self.descriptor_count])


@pytest.fixture
def wrong_daemon(memory: MemoryStore, tmp_path: Path) -> Iterator[WrongDaemon]:
    with WrongDaemon(memory, tmp_path) as daemon:
        yield daemon


def test_a_welcome_without_its_descriptors_is_the_daemons_fault(
    wrong_daemon: WrongDaemon,
) -> None:
    wrong_daemon.descriptor_count = 1
    with pytest.raises(DaemonFaultError, match="1 descriptors instead of 2"):
        open_session(options(wrong_daemon.socket_path))


def test_an_arena_smaller_than_announced_is_not_touched(wrong_daemon: WrongDaemon) -> None:
    wrong_daemon.announced_extra_bytes = 4096
    with pytest.raises(DaemonFaultError, match="holds 8192 bytes, not the announced 12288"):
        open_session(options(wrong_daemon.socket_path))


def test_a_daemon_that_dies_in_the_handshake_is_absent(tmp_path: Path) -> None:
    path = tmp_path / "dying.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def die() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(DaemonAbsentError):
            open_session(options(path))
        thread.join()


def test_an_ended_session_gives_its_descriptors_back(daemon: MemoryDaemon) -> None:
    session = open_session(options(daemon.socket_path))
    closing = session.presence._close
    session.presence.end()
    assert closing.alive
    del session
    gc.collect()
    assert not closing.alive
