import gc
import os
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvstored_client.errors import DaemonAbsentError, DaemonFaultError, SessionRefusedError
from kvstored_client.options import Options
from kvstored_client.session import open_session
from kvstored_contract import handshake
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2
from tests.kvstored_client.fake_daemon import FakeDaemon
from tests.support.descriptors import open_descriptors


def options(path: Path) -> Options:
    return Options(socket=path, arena_bytes=8192, name="engine")


def test_the_handshake_maps_the_arena(daemon: FakeDaemon) -> None:
    session = open_session(options(daemon.socket_path))
    assert daemon.requests[0] == session_pb2.Hello(
        protocol_version=PROTOCOL_VERSION, client_name="engine", arena_bytes=8192
    )
    assert (session.epoch, session.namespace, session.token) == (1, "default", "token-1-0")
    region = session.arena.allocate(4096)
    assert region is not None
    region.view[:3] = b"abc"
    assert bytes(daemon.sessions[session.token].arena[:3]) == b"abc"
    assert not os.get_inheritable(session.presence.eventfd)
    assert session.presence.check()
    session.presence.end()
    assert not region.is_current
    assert bytes(region.view[:3]) == b"abc"


def test_nobody_listens(tmp_path: Path) -> None:
    before = open_descriptors()
    with pytest.raises(DaemonAbsentError, match=r"no daemon at .*none\.sock"):
        open_session(options(tmp_path / "none.sock"))
    assert not open_descriptors() - before


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
                handshake.receive(connection, session_pb2.Hello)
                connection.sendall(handshake.frame(session_pb2.Welcome(refusal="seen")))

        serving = threading.Thread(target=serve)

        def serve_from_now_on(seconds: float) -> None:
            if not serving.is_alive():
                serving.start()
            time.sleep(seconds)

        # The daemon comes to its queue when that has refused the client once.
        clock = SimpleNamespace(monotonic=time.monotonic, sleep=serve_from_now_on)
        monkeypatch.setattr(handshake, "time", clock)
        with pytest.raises(SessionRefusedError, match="seen"):
            open_session(options(path))
        serving.join()


def test_a_refused_session_tells_the_daemons_sentence(daemon: FakeDaemon) -> None:
    daemon.refusal = "too many sessions; close one"
    with pytest.raises(SessionRefusedError, match="too many sessions; close one") as caught:
        open_session(options(daemon.socket_path))
    assert caught.value.reason is Reason.LIMIT_EXCEEDED


def test_a_welcome_without_its_descriptors_is_the_daemons_fault(daemon: FakeDaemon) -> None:
    daemon.descriptor_count = 1
    with pytest.raises(DaemonFaultError, match="1 descriptors instead of 2"):
        open_session(options(daemon.socket_path))


def test_an_arena_smaller_than_announced_is_not_touched(daemon: FakeDaemon) -> None:
    daemon.announced_extra_bytes = 4096
    with pytest.raises(DaemonFaultError, match="holds 8192 bytes, not the announced 12288"):
        open_session(options(daemon.socket_path))


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


def test_an_ended_session_gives_its_descriptors_back(daemon: FakeDaemon) -> None:
    session = open_session(options(daemon.socket_path))
    closing = session.presence._close
    session.presence.end()
    assert closing.alive
    del session
    gc.collect()
    assert not closing.alive
