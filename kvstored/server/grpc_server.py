"""The gRPC server: all services on one Unix socket."""

from functools import partial
from pathlib import Path

import grpc

from kvstored.server.admin_servicer import AdminServicer
from kvstored.server.admission import Admit, admission_registry, by_token
from kvstored.server.calls import Services
from kvstored.server.listen import (
    ListenError,
    SocketPermissions,
    closed_umask,
    open_to,
    prepare_path,
)
from kvstored.server.operators.operator_servicer import OperatorServicer
from kvstored.server.sequence_servicer import SequenceServicer
from kvstored.server.session_servicer import SessionServicer
from kvstored.server.store_servicer import StoreServicer
from kvstored_contract.limits import GRPC_MESSAGE_BYTES_MAX
from kvstored_protos.v1 import (
    admin_pb2_grpc,
    sequence_pb2_grpc,
    session_pb2_grpc,
    store_pb2_grpc,
)

CALLS_WITHOUT_SESSION_MAX = 1024
"""Calls in progress at once beside those of sessions: each is refused as soon as it is seen."""
HANDSHAKE_S_MAX = 10
"""A connection that has not said by then that it speaks HTTP/2 is closed."""
_MS_PER_S = 1000


def connection_options(connections_max: int) -> list[tuple[str, int]]:
    """What gRPC takes: the length of messages, and how many connections at once."""
    return [
        ("grpc.max_receive_message_length", GRPC_MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", GRPC_MESSAGE_BYTES_MAX),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_S_MAX * _MS_PER_S),
    ]


def grpc_target(path: Path) -> str:
    """The gRPC name of a Unix socket."""
    return f"unix:{path}"


async def start_grpc_server(
    path: Path,
    permissions: SocketPermissions,
    *,
    services: Services,
    epoch: int,
    connections_max: int,
) -> grpc.aio.Server:
    """Serves on ``path``; raises ListenError. Every call needs a session's token."""
    prepare_path(path)
    server = grpc.aio.server(
        options=connection_options(connections_max),
        # So many that a session's own limit refuses it before the server refuses others.
        maximum_concurrent_rpcs=services.sessions.calls_max + CALLS_WITHOUT_SESSION_MAX,
    )
    add_services(server, services, epoch=epoch, admit=partial(by_token, services.sessions))
    try:
        with closed_umask():
            server.add_insecure_port(grpc_target(path))
            await server.start()
        open_to(path, permissions)
    except (OSError, RuntimeError) as error:
        await server.stop(None)
        raise ListenError(
            f"cannot listen on {path}: {error}; correct its folder or [server]"
        ) from error
    return server


def add_services(server: grpc.aio.Server, services: Services, *, epoch: int, admit: Admit) -> None:
    """Gives a server all services; ``admit`` says whose session a call has."""
    registry = admission_registry(server, services, admit)
    session_pb2_grpc.add_SessionServiceServicer_to_server(
        SessionServicer(services, epoch=epoch), registry
    )
    store_pb2_grpc.add_StoreServiceServicer_to_server(StoreServicer(services), registry)
    sequence_pb2_grpc.add_SequenceServiceServicer_to_server(SequenceServicer(services), registry)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminServicer(services), registry)
    admin_pb2_grpc.add_OperatorServiceServicer_to_server(OperatorServicer(services), registry)
