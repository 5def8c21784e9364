"""A server over the fake store, in the event loop of the test."""

import asyncio
import mmap
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from kvstored.server.access import AccessRules
from kvstored.server.calls import Latencies
from kvstored.server.listen import SocketPermissions
from kvstored.server.notify import Notifier
from kvstored.server.remote.remote_server import RemoteOptions
from kvstored.server.server import Server, ServerOptions
from kvstored.server.session_table import SessionLimits
from kvstored.tiers.tiered_store import TieredStore
from kvstored_contract.handshake import frame
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import TOKEN_METADATA
from kvstored_contract.session_socket import receive
from kvstored_protos.v1 import session_pb2
from tests.kvstored.server.fake_store import FakeStore
from tests.support.waiting import PATIENCE_S, until

ARENA_BYTES = 64 * 1024
EPOCH = 7
NOT_ADMIN = os.getuid() + 1


@dataclass(slots=True)
class Peer:
    """A client with a session: its welcome, socket, arena and channel."""

    welcome: session_pb2.Welcome
    session: socket.socket
    descriptors: list[int]
    arena: mmap.mmap
    channel: grpc.aio.Channel

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        return ((TOKEN_METADATA, self.welcome.token),)


class Served:
    """A running server over a store of dictionaries, or over ``backing``."""

    def __init__(
        self,
        folder: Path,
        *,
        rules: AccessRules,
        limits: SessionLimits,
        backing: TieredStore | None = None,
        remote: RemoteOptions | None = None,
    ) -> None:
        self.store = FakeStore()
        self.options = ServerOptions(
            socket=folder / "s",
            grpc_socket=folder / "g",
            permissions=SocketPermissions(mode=0o600, gid=None),
            rules=rules,
            limits=limits,
            epoch=EPOCH,
            remote=remote,
        )
        self.stop = asyncio.Event()
        self._server = Server(
            backing or cast("TieredStore", self.store),
            self.options,
            Notifier(None, watchdog_s=None),
        )
        self.task = asyncio.create_task(self._server.run(self.stop))

    @property
    def session_count(self) -> int:
        """Sessions whose end the server has not heard of."""
        return self._server._sessions.session_count

    @property
    def latencies(self) -> Latencies:
        """How long its calls took."""
        return self._server.latencies

    @property
    def call_count(self) -> int:
        """Calls in progress of all sessions."""
        sessions = self._server._sessions._by_token.values()
        return sum(session._call_count for session in sessions)

    async def started(self) -> None:
        """Returns when the server listens; raises what kept it from that."""
        await until(lambda: self.options.socket.is_socket() or self.task.done())
        if self.task.done():
            self.task.result()

    async def hello(
        self, hello: session_pb2.Hello
    ) -> tuple[session_pb2.Welcome, list[int], socket.socket]:
        """Does the handshake; the caller owns descriptors and socket."""

        def converse() -> tuple[session_pb2.Welcome, list[int], socket.socket]:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.settimeout(PATIENCE_S)
            client.connect(str(self.options.socket))
            client.sendall(frame(hello))
            return (*receive(client, session_pb2.Welcome), client)

        return await asyncio.to_thread(converse)

    @asynccontextmanager
    async def peer(self, arena_bytes: int = ARENA_BYTES) -> AsyncIterator[Peer]:
        """A session that ends with the body."""
        welcome, descriptors, client = await self.hello(
            session_pb2.Hello(
                protocol_version=PROTOCOL_VERSION, client_name="test", arena_bytes=arena_bytes
            )
        )
        assert not welcome.refusal
        with client, closing_descriptors(descriptors):
            arena = mmap.mmap(descriptors[0], welcome.arena_bytes)
            async with grpc.aio.insecure_channel(welcome.grpc_target) as channel:
                yield Peer(welcome, client, descriptors, arena, channel)


@contextmanager
def closing_descriptors(descriptors: list[int]) -> Iterator[None]:
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
