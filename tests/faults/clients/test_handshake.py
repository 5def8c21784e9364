"""What a hostile client does to the session socket: the daemon keeps nothing of it.

Fails when ``SessionSocket._converse`` does not close a connection whose handshake failed (seen:
the hostile client waits for its end for ever), when a handshake may take 600 s (seen: 222
descriptors instead of 22), and when ``serve`` does not catch the OSError of an accept (seen:
the daemon ends).
"""

import contextlib
import os
import random
import resource
import socket
import struct
from pathlib import Path

import pytest

from kvstored.server.session_socket import HANDSHAKE_TIMEOUT_S
from kvstored_contract.handshake import HANDSHAKE_BYTES_MAX, frame
from kvstored_contract.limits import CLIENT_NAME_BYTES_MAX, PROTOCOL_VERSION
from kvstored_contract.session_socket import receive
from kvstored_protos.v1 import session_pb2
from tests.faults.clients.raw_session import RawSession
from tests.faults.clients.test_messages import check_log
from tests.faults.clients.witness import Witness
from tests.faults.memory.process import ProcessState, settled_state, state_when_back
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.scale import Scale, at
from tests.support.seeds import seed
from tests.support.waiting import PATIENCE_S, wait_until

SILENT_CLIENTS = 200
HELLO = frame(
    session_pb2.Hello(protocol_version=PROTOCOL_VERSION, client_name="x", arena_bytes=4096)
)


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Without a time limit it waits for room in the queue of the listening socket.
    connection.connect(str(path))
    connection.settimeout(60)
    return connection


def send(connection: socket.socket, data: bytes) -> None:
    """Sends what the daemon takes; it may hang up in the middle."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(data)


def say(path: Path, data: bytes) -> None:
    """Connects, sends, half-closes, and reads to the end; whatever comes is no descriptor leak."""
    with connected(path) as connection:
        send(connection, data)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while True:
                part, descriptors, _, _ = socket.recv_fds(connection, 4096, 4)
                for descriptor in descriptors:
                    os.close(descriptor)
                if not part:
                    return


def random_speech(source: random.Random) -> bytes:
    """Something that is no handshake, or a handshake that is not granted."""
    hello = session_pb2.Hello(
        protocol_version=source.choice([0, PROTOCOL_VERSION, PROTOCOL_VERSION + 1, 2**32 - 1]),
        client_name=source.choice(["", "x" * (CLIENT_NAME_BYTES_MAX + 1), "\0\n\x1b[2J"]),
        arena_bytes=source.choice([0, 1, 4096, 2**40, 2**63, 2**64 - 4095, 2**64 - 1]),
    )
    length = source.choice([0, 1, 2**31, HANDSHAKE_BYTES_MAX, HANDSHAKE_BYTES_MAX + 1, 2**32 - 1])
    flipped = bytearray(HELLO)
    flipped[source.randrange(len(flipped))] ^= 1 << source.randrange(8)
    return source.choice(
        [
            source.randbytes(source.randrange(200)),
            struct.pack("<I", length) + source.randbytes(source.randrange(HANDSHAKE_BYTES_MAX)),
            frame(hello),
            frame(hello) * 3,
            bytes(flipped),
            HELLO[: source.randrange(len(HELLO))],
        ]
    )


@pytest.fixture
def before(served: DaemonProcess) -> ProcessState:
    """The idle daemon, when its pools have their threads."""
    with contextlib.ExitStack() as sessions:
        for _ in range(10):
            sessions.enter_context(RawSession(served.socket_path, arena_bytes=4096))
    return settled_state(served.pid)


def check_returned(daemon: DaemonProcess, before: ProcessState) -> None:
    after = state_when_back(daemon.pid, before, timeout_s=HANDSHAKE_TIMEOUT_S + PATIENCE_S)
    assert after.is_back_at(before), (before, after)
    check_log(daemon)


@labs.SPEECHES.sizes("count")
def test_random_speech_leaves_nothing_behind(
    served: DaemonProcess, before: ProcessState, count: int
) -> None:
    source = random.Random(seed())
    with Witness(served.socket_path):
        for _ in range(count):
            say(served.socket_path, random_speech(source))
    check_returned(served, before)


def test_clients_that_hang_up_at_every_byte(served: DaemonProcess, before: ProcessState) -> None:
    """A close without a word, too: what the daemon has sent by then comes back to it unread."""
    for length in range(len(HELLO) + 1):
        for ends_in_order in (True, False):
            with connected(served.socket_path) as connection:
                send(connection, HELLO[:length])
                if ends_in_order:
                    connection.shutdown(socket.SHUT_WR)
                elif length == len(HELLO):
                    # The welcome is on its way, with descriptors that nobody takes.
                    connection.recv(1, socket.MSG_PEEK)
    with RawSession(served.socket_path):
        pass
    check_returned(served, before)


def test_descriptors_that_nobody_asked_for_are_dropped(
    served: DaemonProcess, before: ProcessState
) -> None:
    for count in (1, 2, 64, 250):
        with connected(served.socket_path) as connection, contextlib.ExitStack() as opened:
            descriptors = []
            for _ in range(count):
                descriptors.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
                opened.callback(os.close, descriptors[-1])
            socket.send_fds(connection, [HELLO[:5]], descriptors)
            socket.send_fds(connection, [HELLO[5:]], descriptors)
            welcome, received = receive(connection, session_pb2.Welcome)
            assert not welcome.refusal
            for descriptor in received:
                os.close(descriptor)
    check_returned(served, before)


@at(Scale.QUICK)
def test_many_silent_clients_keep_nobody_out(served: DaemonProcess, before: ProcessState) -> None:
    """They are cut off after a while, and meanwhile others come in."""
    with contextlib.ExitStack() as silent:
        for _ in range(SILENT_CLIENTS):
            silent.enter_context(connected(served.socket_path))
        with Witness(served.socket_path):
            pass
        check_returned(served, before)


def test_more_clients_than_descriptors(served: DaemonProcess) -> None:
    """The daemon out of descriptors refuses, lives, and serves again when they are back."""
    limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)
    with Witness(served.socket_path):
        state = settled_state(served.pid)
        few = (state.descriptors + 20, limits[1])
        with contextlib.ExitStack() as silent:
            # Other tests use the same daemon, whatever becomes of this one.
            silent.callback(resource.prlimit, served.pid, resource.RLIMIT_NOFILE, limits)
            resource.prlimit(served.pid, resource.RLIMIT_NOFILE, few)
            for _ in range(60):
                silent.enter_context(connected(served.socket_path))
            wait_until(lambda: "cannot accept a client" in served.log)
    with Witness(served.socket_path):
        pass
    assert "Traceback" not in served.log
