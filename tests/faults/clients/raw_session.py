"""A session without the SDK, which sends whatever a test wants."""

import mmap
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc

from kvstored_contract.handshake import frame
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA
from kvstored_contract.session_socket import receive
from kvstored_protos.v1 import session_pb2
from tests.support.waiting import PATIENCE_S

ARENA_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to a call; ``reason`` is empty where the answer carries none."""

    status: grpc.StatusCode
    reason: str
    details: str
    body: bytes


class RawSession:
    """A handshake done by hand, the arena, and calls of raw bytes."""

    def __init__(self, path: Path, *, arena_bytes: int = ARENA_BYTES, name: str = "raw") -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.settimeout(PATIENCE_S)
        self.connection.connect(str(path))
        self.connection.sendall(
            frame(
                session_pb2.Hello(
                    protocol_version=PROTOCOL_VERSION, client_name=name, arena_bytes=arena_bytes
                )
            )
        )
        self.welcome, self.descriptors = receive(self.connection, session_pb2.Welcome)
        assert not self.welcome.refusal, self.welcome.refusal
        self.arena = mmap.mmap(self.descriptors[0], self.welcome.arena_bytes)
        self.channel = grpc.insecure_channel(
            self.welcome.grpc_target,
            # A channel of its own: gRPC shares connections between equal ones.
            options=[("grpc.use_local_subchannel_pool", 1)],
        )

    @property
    def eventfd(self) -> int:
        """The descriptor that the daemon rings."""
        return self.descriptors[1]

    def call(self, method: str, body: bytes, *, token: str | None = None) -> Answer:
        """Calls a method with any bytes, and with any token (default: the session's own)."""
        return call(
            self.channel, method, body, token=self.welcome.token if token is None else token
        )

    def hang_up(self) -> None:
        """Closes the session socket; the rest stays open."""
        self.connection.close()

    def close(self) -> None:
        """Closes everything."""
        self.hang_up()
        self.channel.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raw_method(channel: grpc.Channel, method: str) -> Any:
    """A method that takes and answers bytes, which the types of gRPC do not know."""
    return channel.unary_unary(method)


def call(channel: grpc.Channel, method: str, body: bytes, *, token: str | None) -> Answer:
    """One unary call of raw bytes; None sends no token at all."""
    metadata = () if token is None else ((TOKEN_METADATA, token),)
    future = raw_method(channel, method).future(body, metadata=metadata, timeout=PATIENCE_S)
    error = future.exception()
    trailing = dict(future.trailing_metadata() or ())
    return Answer(
        status=future.code(),
        reason=str(trailing.get(REASON_METADATA, "")),
        details=future.details() or "",
        body=b"" if error is not None else bytes(future.result()),
    )
