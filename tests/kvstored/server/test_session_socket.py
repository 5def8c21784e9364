"""The handshake, and the end of a session."""

import asyncio
import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kvstored.io.resident import AbandonedError
from kvstored.server import session_socket, session_table
from kvstored.server.access import AccessRules, Credentials
from kvstored.server.held.arena import Arena
from kvstored.server.held.places import OPERATOR_SESSIONS_MAX
from kvstored.server.session_table import SessionLimits
from kvstored_contract.handshake import HANDSHAKE_BYTES_MAX, HandshakeError, frame
from kvstored_contract.limits import (
    ALIGNMENT_BYTES,
    CLIENT_NAME_BYTES_MAX,
    PROTOCOL_VERSION,
)
from kvstored_contract.reasons import Reason
from kvstored_contract.session_socket import receive
from kvstored_protos.v1 import session_pb2, session_pb2_grpc
from tests.kvstored.server.served import ARENA_BYTES, EPOCH, Served
from tests.support.waiting import PATIENCE_S, until


def hello(
    *, version: int = PROTOCOL_VERSION, name: str = "t", arena_bytes: int = ARENA_BYTES
) -> session_pb2.Hello:
    return session_pb2.Hello(protocol_version=version, client_name=name, arena_bytes=arena_bytes)


async def test_welcome(served: Served) -> None:
    async with served.peer(arena_bytes=5000) as peer:
        assert peer.welcome.epoch == EPOCH
        assert peer.welcome.namespace == "team"
        assert peer.welcome.admin
        assert peer.welcome.arena_bytes == 8192
        assert peer.welcome.grpc_target == f"unix:{served.options.grpc_socket}"
        assert len(peer.descriptors) == 2
        assert os.fstat(peer.descriptors[0]).st_size == 8192


async def test_two_sessions_have_nothing_in_common(served: Served) -> None:
    async with served.peer() as one, served.peer() as two:
        assert one.welcome.token != two.welcome.token
        assert one.welcome.session_id != two.welcome.session_id
        one.arena[:4] = b"mine"
        assert two.arena[:4] == bytes(4)


@pytest.mark.parametrize(
    ("message", "reason", "words"),
    [
        (hello(version=PROTOCOL_VERSION + 1), Reason.FIELD_INVALID, "protocol version"),
        (hello(name="x" * (CLIENT_NAME_BYTES_MAX + 1)), Reason.FIELD_INVALID, "client_name"),
        (hello(arena_bytes=0), Reason.FIELD_INVALID, "arena_bytes"),
        (hello(arena_bytes=4 * ARENA_BYTES + 1), Reason.LIMIT_EXCEEDED, "arena_bytes_max"),
    ],
)
async def test_refused(
    served: Served, message: session_pb2.Hello, reason: Reason, words: str
) -> None:
    welcome, descriptors, client = await served.hello(message)
    with client:
        assert words in welcome.refusal
        assert Reason(welcome.reason) is reason
        assert (welcome.token, descriptors) == ("", [])
        assert await asyncio.to_thread(client.recv, 1) == b""


async def test_all_arenas_together_are_limited_and_come_back(served: Served) -> None:
    async with served.peer(4 * ARENA_BYTES):
        welcome, _, client = await served.hello(hello(arena_bytes=2 * ARENA_BYTES))
        client.close()
        assert "arenas_bytes_max" in welcome.refusal
    await until_accepted(served, hello(arena_bytes=4 * ARENA_BYTES))


async def test_client_that_gives_up_leaves_its_half_made_arena_behind(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was made to its end first, while the client was refused for it."""
    is_begun, is_given_up = threading.Event(), threading.Event()

    def make(_: int, *, huge_pages: bool, is_abandoned: Callable[[], bool]) -> Arena:
        del huge_pages
        is_begun.set()
        while not is_abandoned():
            time.sleep(0.001)
        is_given_up.set()
        raise AbandonedError

    with monkeypatch.context() as patch:
        patch.setattr(session_table, "Arena", make)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(served.options.socket))
            client.sendall(frame(hello(arena_bytes=4 * ARENA_BYTES)))
            await until(is_begun.is_set)
        await until(is_given_up.is_set)
    await until_accepted(served, hello(arena_bytes=4 * ARENA_BYTES))


async def test_sessions_are_limited_and_come_back(served: Served) -> None:
    async with served.peer(), served.peer(), served.peer():
        welcome, _, client = await served.hello(hello())
        client.close()
        assert "sessions_max" in welcome.refusal
    await until_accepted(served, hello())


@pytest.mark.parametrize("taken", ["sessions", "arenas"])
async def test_engines_that_had_all_places_kept_operators_out(served: Served, taken: str) -> None:
    """Bug: what operators need to find out who has them was refused like any other session."""
    wanted = hello(arena_bytes=ALIGNMENT_BYTES)
    wanted.for_administration = True
    async with AsyncExitStack() as engines:
        sizes = {"sessions": (1, 1, 1), "arenas": (4, 1)}[taken]
        for size in sizes:
            await engines.enter_async_context(served.peer(size * ARENA_BYTES))
        refused, _, client = await served.hello(hello(arena_bytes=2 * ARENA_BYTES))
        client.close()
        assert refused.refusal
        held = []
        for _ in range(OPERATOR_SESSIONS_MAX):
            welcome, descriptors, client = await served.hello(wanted)
            assert not welcome.refusal
            held.append(client)
            for descriptor in descriptors:
                os.close(descriptor)
        welcome, _, client = await served.hello(wanted)
        client.close()
        assert "limit of sessions of operators" in welcome.refusal
        for client in held:
            client.close()
        await until_accepted(served, wanted)
        wanted.arena_bytes = 2 * ARENA_BYTES
        welcome, _, client = await served.hello(wanted)
        client.close()
        assert "server." in welcome.refusal


async def until_accepted(served: Served, message: session_pb2.Hello) -> None:
    """Fails by the test's timeout when the limits never come back."""
    while True:
        welcome, descriptors, client = await served.hello(message)
        client.close()
        for descriptor in descriptors:
            os.close(descriptor)
        if not welcome.refusal:
            return


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<I", HANDSHAKE_BYTES_MAX + 1),
        struct.pack("<I", 4) + b"\xff\xff\xff\xff",
        b"\x01",
    ],
    ids=["too long", "no message", "cut short"],
)
async def test_what_is_no_handshake_is_cut_off(served: Served, data: bytes) -> None:
    def converse() -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(PATIENCE_S)
            client.connect(str(served.options.socket))
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            return client.recv(1)

    assert await asyncio.to_thread(converse) == b""
    async with served.peer():
        pass


async def test_a_client_that_writes_after_the_handshake_loses_its_session(served: Served) -> None:
    async with served.peer() as peer:
        peer.session.sendall(b"x")
        # The daemon closes with our byte unread or read: both end the connection.
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(peer.session.recv, 1) == b""


async def test_strangers_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Credentials(pid=1, uid=os.getuid() + 2, gid=1)
    monkeypatch.setattr(session_socket, "peer_credentials", lambda _: stranger)
    welcome, descriptors, client = await served.hello(hello())
    client.close()
    assert "may not use this store" in welcome.refusal
    assert (welcome.token, descriptors) == ("", [])


async def test_draining_ends_every_session(
    tmp_path: Path, rules: AccessRules, limits: SessionLimits
) -> None:
    """*Bug:* the threads that had ended the sessions stayed."""
    before = set(threading.enumerate())
    server = Served(tmp_path, rules=rules, limits=limits)
    await server.started()
    async with server.peer() as peer:
        stub = session_pb2_grpc.SessionServiceStub(peer.channel)
        await stub.Ping(session_pb2.PingRequest(), metadata=peer.metadata)
        server.stop.set()
        await server.task
        assert await asyncio.to_thread(peer.session.recv, 1) == b""
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in left if name.startswith("kvstored-end")]
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "g").exists()


def test_receive_reports_end_of_file() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        theirs.sendall(frame(session_pb2.Welcome(token="t"))[:5])
        theirs.close()
        with pytest.raises(HandshakeError):
            receive(ours, session_pb2.Welcome)
