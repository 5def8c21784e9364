"""Who may talk to a real daemon, and what its clients cannot do to each other."""

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    RegionStaleError,
    RequestInvalidError,
    StateKind,
    StateLayout,
)
from kvstored_contract.handshake import frame
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA
from kvstored_contract.session_socket import receive
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc, session_pb2, session_pb2_grpc
from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")

# Imports come first: another user may not be able to read this Python.
STRANGER = """
import os, socket, sys
from kvstored_contract.handshake import frame
from kvstored_contract.session_socket import receive
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_protos.v1 import session_pb2
os.setgroups([]); os.setresgid(*[int(sys.argv[2])] * 3); os.setresuid(*[int(sys.argv[3])] * 3)
try:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    hello = session_pb2.Hello(protocol_version=PROTOCOL_VERSION, arena_bytes=4096)
    connection.sendall(frame(hello))
    welcome, descriptors = receive(connection, session_pb2.Welcome)
    print(welcome.refusal or f"{welcome.namespace} {welcome.admin} {len(descriptors)}")
except PermissionError:
    print("no permission")
"""


def stranger_hears(daemon: DaemonProcess) -> str:
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, str(daemon.socket_path), str(NOBODY), str(NOBODY)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return result.stdout.strip()


def restart_with(daemon: DaemonProcess, **sections: dict[str, Any]) -> None:
    daemon.kill()
    daemon.configure(sections)
    daemon.start()


@needs_root
def test_another_user_cannot_open_the_socket(shared_daemon: DaemonProcess) -> None:
    assert stranger_hears(shared_daemon) == "no permission"


@needs_root
def test_another_user_is_refused_even_where_the_socket_is_open(daemon: DaemonProcess) -> None:
    restart_with(daemon, server={"socket_mode": "0666"})
    assert f"user {NOBODY} may not use this store" in stranger_hears(daemon)


@needs_root
def test_a_configured_user_gets_its_namespace_only(daemon: DaemonProcess) -> None:
    tenants = [{"namespace": "guests", "users": [NOBODY]}]
    restart_with(daemon, server={"socket_mode": "0666"}, access={"tenants": tenants})
    assert stranger_hears(daemon) == "guests False 2"


@needs_root
def test_a_configured_group_gets_in_through_the_socket_group(daemon: DaemonProcess) -> None:
    tenants = [{"namespace": "guests", "groups": [NOBODY]}]
    restart_with(daemon, server={"socket_group": NOBODY}, access={"tenants": tenants})
    assert stranger_hears(daemon) == "guests False 2"


@contextmanager
def session(path: Path) -> Iterator[tuple[session_pb2.Welcome, list[int]]]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(path))
        hello = session_pb2.Hello(protocol_version=PROTOCOL_VERSION, arena_bytes=1 << 20)
        connection.sendall(frame(hello))
        welcome, descriptors = receive(connection, session_pb2.Welcome)
        assert not welcome.refusal
        try:
            yield welcome, descriptors
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def ping_reason(welcome: session_pb2.Welcome, token: str) -> str | None:
    """The reason why a ping was refused; None when it was not."""
    with grpc.insecure_channel(welcome.grpc_target) as channel:
        future = session_pb2_grpc.SessionServiceStub(channel).Ping.future(
            session_pb2.PingRequest(), metadata=((TOKEN_METADATA, token),), timeout=60
        )
        error = future.exception()
        if error is None:
            return None
        assert future.code() is grpc.StatusCode.UNAUTHENTICATED
        return str(dict(future.trailing_metadata())[REASON_METADATA])


def test_the_token_of_a_closed_session_is_refused(shared_daemon: DaemonProcess) -> None:
    with session(shared_daemon.socket_path) as (welcome, _):
        assert ping_reason(welcome, welcome.token) is None
    # The daemon hears of the end when it reads it: the token works until then at most.
    wait_until(lambda: ping_reason(welcome, welcome.token) is not None)
    assert ping_reason(welcome, welcome.token) == "TOKEN_UNKNOWN"


def test_a_token_of_an_earlier_epoch_is_refused(daemon: DaemonProcess) -> None:
    with session(daemon.socket_path) as (welcome, _):
        daemon.restart()
        assert ping_reason(welcome, welcome.token) == "TOKEN_UNKNOWN"


def test_one_session_cannot_reach_the_arena_of_another(
    shared_daemon: DaemonProcess, request: pytest.FixtureRequest
) -> None:
    """A call's offsets mean the arena of the session whose token it carries, and end with it."""
    layout = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),))
    path, salt = shared_daemon.socket_path, request.node.name
    with (
        Client(path, arena_bytes="1MiB", salt=salt, strict=True) as first,
        Client(path, arena_bytes="1MiB", salt=salt, strict=True) as second,
    ):
        mine, other = first.allocate(8192), second.allocate(8192)
        assert mine is not None
        assert other is not None
        mine.view[:] = b"\x11" * 8192
        other.view[:] = b"\x22" * 8192
        chunk = NewChunk(key=b"k" * 32, token_count=64)
        first.put(layout, [chunk], Placement.contiguous(mine, layout), ack=Ack.DURABLE)
        with second.read(layout, [chunk.key], Placement.contiguous(other, layout)) as read:
            assert read.wait().resident == (True,)
        assert bytes(other.view[:4096]) == b"\x11" * 4096
        assert bytes(other.view[4096:]) == b"\x22" * 4096
        outside = Placement(regions=(), base=1 << 20, layer_stride=4096)
        with pytest.raises(RequestInvalidError):
            second.read(layout, [chunk.key], outside)
        borrowed = Placement.contiguous(mine, layout)
        with pytest.raises(RegionStaleError):
            second.read(layout, [chunk.key], borrowed)


def test_a_client_cannot_resize_its_arena(shared_daemon: DaemonProcess) -> None:
    with session(shared_daemon.socket_path) as (welcome, descriptors):
        for byte_count in (0, 4096, 2 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptors[0], byte_count)
        with pytest.raises(PermissionError):
            fcntl.fcntl(descriptors[0], fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        assert os.fstat(descriptors[0]).st_size == welcome.arena_bytes


def test_a_stranger_at_the_grpc_socket_can_do_nothing(shared_daemon: DaemonProcess) -> None:
    with grpc.insecure_channel(f"unix:{shared_daemon.grpc_socket_path}") as channel:
        with pytest.raises(grpc.RpcError) as info:
            admin_pb2_grpc.AdminServiceStub(channel).Stats(admin_pb2.StatsRequest(), timeout=60)
        error = info.value
        assert isinstance(error, grpc.Call)
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED
