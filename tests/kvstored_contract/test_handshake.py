import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from kvstored_contract import session_socket
from kvstored_contract.handshake import (
    HANDSHAKE_BYTES_MAX,
    LENGTH,
    HandshakeError,
    body_bytes,
    frame,
    parse,
)
from kvstored_contract.session_socket import connect, receive
from kvstored_protos.v1 import session_pb2
from tests.support.descriptors import open_descriptors

HELLO = session_pb2.Hello(protocol_version=1)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(30)
        there.settimeout(30)
        yield here, there


def test_a_frame_is_received_as_it_was_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.sendall(frame(HELLO))
    assert receive(here, session_pb2.Hello) == (HELLO, [])


def test_a_frame_in_pieces_is_put_together(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends

    def send_bytewise() -> None:
        for byte in frame(HELLO):
            there.sendall(bytes([byte]))

    sender = Thread(target=send_bytewise)
    sender.start()
    message, _ = receive(here, session_pb2.Hello)
    sender.join()
    assert message == HELLO


def test_nothing_behind_the_frame_is_taken(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    there.sendall(frame(HELLO) + b"rest")
    receive(here, session_pb2.Hello)
    assert here.recv(10) == b"rest"


def test_descriptors_come_in_their_order(ends: tuple[socket.socket, socket.socket]) -> None:
    here, there = ends
    sent = [os.memfd_create("first"), os.memfd_create("second")]
    socket.send_fds(there, [frame(HELLO)], sent)
    _, received = receive(here, session_pb2.Hello)
    assert [os.fstat(descriptor).st_ino for descriptor in received] == [
        os.fstat(descriptor).st_ino for descriptor in sent
    ]
    for descriptor in sent + received:
        os.close(descriptor)


@pytest.mark.parametrize("sent_bytes", [0, 2, LENGTH.size, LENGTH.size + 1])
def test_end_of_file_is_an_error(
    ends: tuple[socket.socket, socket.socket], sent_bytes: int
) -> None:
    here, there = ends
    there.sendall(frame(HELLO)[:sent_bytes])
    there.close()
    with pytest.raises(HandshakeError, match="closed the session socket"):
        receive(here, session_pb2.Hello)


def test_a_message_that_is_too_long_is_refused_unread(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    there.sendall(LENGTH.pack(HANDSHAKE_BYTES_MAX + 1) + b"body")
    with pytest.raises(HandshakeError, match=f"of {HANDSHAKE_BYTES_MAX + 1} bytes is too long"):
        receive(here, session_pb2.Hello)
    assert here.recv(10) == b"body"


def test_the_longest_message_is_accepted() -> None:
    assert body_bytes(LENGTH.pack(HANDSHAKE_BYTES_MAX)) == HANDSHAKE_BYTES_MAX


def test_nonsense_is_no_message() -> None:
    with pytest.raises(HandshakeError, match="not a Hello message"):
        parse(session_pb2.Hello, b"\xff\xff\xff")


def test_descriptors_of_a_message_that_is_none_are_closed(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    here, there = ends
    before = open_descriptors()
    socket.send_fds(there, [LENGTH.pack(2) + b"\xff\xff"], [there.fileno()])
    with pytest.raises(HandshakeError, match="not a Hello"):
        receive(here, session_pb2.Hello)
    assert not open_descriptors() - before


@pytest.fixture
def full_queue(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A listening socket whose queue holds one connection, and has it."""
    path = str(tmp_path / "listening")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        yield listener, path


def test_a_full_queue_of_connections_is_waited_for(
    full_queue: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: EAGAIN counted as an absent daemon."""
    listener, path = full_queue
    waits: list[float] = []

    def accept_meanwhile(seconds: float) -> None:
        waits.append(seconds)
        listener.accept()[0].close()

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=accept_meanwhile)
    monkeypatch.setattr(session_socket, "time", clock)
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        connect(client, path)
        assert client.getpeername() == path
    assert len(waits) == 1


def test_a_queue_that_stays_full_is_a_timeout(full_queue: tuple[socket.socket, str]) -> None:
    _, path = full_queue
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0.02)
        with pytest.raises(TimeoutError, match=r"queue of connections has been full for 0\.02 s"):
            connect(client, path)


def test_a_socket_that_nobody_listens_on_is_refused_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "dead")
    with socket.socket(socket.AF_UNIX) as bound, socket.socket(socket.AF_UNIX) as client:
        bound.bind(path)
        client.settimeout(30)
        with pytest.raises(ConnectionRefusedError):
            connect(client, path)
