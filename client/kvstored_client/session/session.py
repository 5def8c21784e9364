"""One session with the daemon: handshake, arena, token."""

import os
import socket
from collections.abc import Callable

from kvstored_client.errors import (
    DaemonAbsentError,
    DaemonFaultError,
    SessionRefusedError,
    reason_of,
)
from kvstored_client.session.arena import Arena, ArenaSizeError, map_arena
from kvstored_client.session.limits import CONNECT_TIMEOUT_S, welcome_timeout_s
from kvstored_client.session.options import Options
from kvstored_client.session.presence import Presence
from kvstored_contract import handshake, session_socket
from kvstored_contract.limits import PROTOCOL_VERSION
from kvstored_protos.v1 import session_pb2


class Session:
    """What the daemon granted: everything ends together when the presence is lost.

    Thread-safe. ``registered`` holds the ids of the layouts that this session announced,
    ``refused`` of those that the daemon does not take.
    """

    __slots__ = (
        "arena",
        "epoch",
        "grpc_target",
        "namespace",
        "presence",
        "refused",
        "registered",
        "token",
    )

    def __init__(self, welcome: session_pb2.Welcome, presence: Presence, arena: Arena) -> None:
        self.epoch = welcome.epoch
        self.namespace = welcome.namespace
        self.token = welcome.token
        self.grpc_target = welcome.grpc_target
        self.presence = presence
        self.arena = arena
        self.registered: set[bytes] = set()
        self.refused: set[bytes] = set()


OpenSession = Callable[[Options], Session]


def open_session(options: Options) -> Session:
    """Connects to the daemon and shakes hands.

    Waits as long as the daemon may take to make the arena (``limits.welcome_timeout_s``). Raises
    DaemonAbsentError when nobody answers, SessionRefusedError when the daemon
    does not want this client, DaemonFaultError when its answer makes no sense.
    """
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise DaemonAbsentError(f"no socket to reach the daemon with: {error}") from error
    connection.settimeout(CONNECT_TIMEOUT_S)
    try:
        session_socket.connect(connection, str(options.socket))
        return _shake_hands(connection, options)
    except OSError as error:
        connection.close()
        raise DaemonAbsentError(f"no daemon at {options.socket}: {error}") from error
    except BaseException:
        connection.close()
        raise


def _shake_hands(connection: socket.socket, options: Options) -> Session:
    hello = session_pb2.Hello(
        protocol_version=PROTOCOL_VERSION,
        client_name=options.name,
        arena_bytes=options.arena_bytes,
    )
    connection.sendall(handshake.frame(hello))
    welcome_s = welcome_timeout_s(options.arena_bytes)
    connection.settimeout(welcome_s)
    try:
        welcome, descriptors = session_socket.receive(connection, session_pb2.Welcome)
    except TimeoutError as error:
        raise TimeoutError(
            f"it has granted no session with an arena of {options.arena_bytes} bytes within "
            f"{welcome_s:.0f} s"
        ) from error
    try:
        return _accept(connection, welcome, descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _accept(
    connection: socket.socket, welcome: session_pb2.Welcome, descriptors: list[int]
) -> Session:
    """Builds the session; takes over the descriptors only when it succeeds."""
    if welcome.refusal:
        raise SessionRefusedError(welcome.refusal, reason=reason_of(welcome.reason), refused=True)
    if len(descriptors) != session_socket.DESCRIPTOR_COUNT:
        raise DaemonFaultError(f"the daemon passed {len(descriptors)} descriptors instead of 2")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    arena_descriptor, eventfd = descriptors
    try:
        memory = map_arena(arena_descriptor, welcome.arena_bytes)
    except ArenaSizeError as error:
        raise DaemonFaultError(str(error)) from error
    os.close(arena_descriptor)
    presence = Presence(connection, eventfd)
    return Session(welcome, presence, Arena(memory, presence.check))
