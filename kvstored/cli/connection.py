"""A short session with the running daemon, as any client would have one."""

import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from kvstored.cli.errors import CommandError
from kvstored_contract.handshake import HandshakeError, frame
from kvstored_contract.limits import ALIGNMENT_BYTES, GRPC_MESSAGE_BYTES_MAX, PROTOCOL_VERSION
from kvstored_contract.reasons import TOKEN_METADATA
from kvstored_contract.session_socket import connect, receive
from kvstored_protos.v1 import session_pb2

CALL_TIMEOUT_S = 30.0
_CLIENT_NAME = "kvstored-cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A channel to the daemon and what authenticates calls on it."""

    channel: grpc.Channel
    metadata: tuple[tuple[str, str], ...]
    welcome: session_pb2.Welcome


@contextmanager
def connected(path: Path) -> Iterator[Connection]:
    """Opens a session on the session socket ``path`` and ends it after the body.

    Raises CommandError when no daemon answers, when it refuses, and for every gRPC
    error in the body.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as session:
        session.settimeout(CALL_TIMEOUT_S)
        welcome = _shake_hands(session, path)
        options = [("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX)]
        with grpc.insecure_channel(welcome.grpc_target, options=options) as channel:
            try:
                yield Connection(
                    channel=channel,
                    metadata=((TOKEN_METADATA, welcome.token),),
                    welcome=welcome,
                )
            except grpc.RpcError as error:
                raise CommandError(f"the daemon answered: {_details(error)}") from error


def _shake_hands(session: socket.socket, path: Path) -> session_pb2.Welcome:
    try:
        connect(session, os.fspath(path))
        hello = session_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            client_name=_CLIENT_NAME,
            arena_bytes=ALIGNMENT_BYTES,
            for_administration=True,
        )
        session.sendall(frame(hello))
        welcome, descriptors = receive(session, session_pb2.Welcome)
    except (HandshakeError, OSError) as error:
        raise CommandError(
            f"no daemon answers on {path} ({error}); start it with `kvstored run` or name its "
            "configuration with --config"
        ) from error
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    if welcome.refusal:
        raise CommandError(f"the daemon on {path} refused: {welcome.refusal}")
    return welcome


def _details(error: grpc.RpcError) -> str:
    return str(error.details()) if isinstance(error, grpc.Call) else str(error)
