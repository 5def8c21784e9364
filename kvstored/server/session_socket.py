"""The session socket: the handshake, and the client's death as end of file."""

import asyncio
import contextlib
import logging
import socket

from kvstored.server.access import AccessRules, Grant
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.operators.intake import Intake
from kvstored.server.peer import peer_credentials
from kvstored.server.session import Session, SessionKind
from kvstored.server.session_table import SessionTable
from kvstored_contract.handshake import LENGTH, HandshakeError, body_bytes, frame, parse
from kvstored_contract.limits import ALIGNMENT_BYTES, CLIENT_NAME_BYTES_MAX, PROTOCOL_VERSION
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, session_pb2

LOGGER = logging.getLogger(__name__)
HANDSHAKE_TIMEOUT_S = 10.0


class SessionSocket:
    """Accepts clients on a bound and listening Unix socket and keeps their sessions.

    Every client gets ``grpc_target`` and ``epoch``. At most ``connections_max`` are open at once,
    those before their handshake included.
    """

    def __init__(
        self,
        listener: socket.socket,
        *,
        rules: AccessRules,
        sessions: SessionTable,
        grpc_target: str,
        epoch: int,
        intake: Intake,
        connections_max: int,
    ) -> None:
        self._listener = listener
        self._rules = rules
        self._sessions = sessions
        self._grpc_target = grpc_target
        self._epoch = epoch
        self._intake = intake
        self._connections_max = connections_max
        self._connections: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Accepts connections until it is cancelled; those it has made go on."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        slots = asyncio.Semaphore(self._connections_max)
        while True:
            await slots.acquire()
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                slots.release()
                LOGGER.warning("cannot accept a client: %s", error)
                await asyncio.sleep(1)
                continue
            task = asyncio.create_task(self._converse(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
            task.add_done_callback(lambda _task: slots.release())

    async def close(self) -> None:
        """Closes every connection and thereby ends its session."""
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _converse(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with connection:
            try:
                session = await self._admit(connection)
            except (HandshakeError, OSError, TimeoutError) as error:
                LOGGER.info("a client did not complete the handshake: %s", error)
                return
            if session is None:
                return
            try:
                await self._welcome(connection, session)
                await _end_of_file(connection)
            finally:
                await self._sessions.close(session)
                LOGGER.info("session %d ended", session.identity.session_id)

    async def _admit(self, connection: socket.socket) -> Session | None:
        """Opens the session that the client asks for, or tells it why there is none."""
        try:
            # A socket that is closed with its message unread may lose the refusal.
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                hello = await _receive_hello(connection)
            grant = self._grant(connection)
            _check_hello(hello)
            if not (grant.admin and hello.for_administration):
                self._intake.check()
            session = await self._open(connection, grant, hello)
        except RefusedError as refusal:
            LOGGER.warning("a client was refused: %s", refusal)
            welcome = session_pb2.Welcome(
                refusal=str(refusal),
                reason=common_pb2.Reason.ValueType(refusal.reason),
                epoch=self._epoch,
            )
            await asyncio.get_running_loop().sock_sendall(connection, frame(welcome))
            return None
        LOGGER.info(
            "session %d of client %r in namespace %r, its arena on %s",
            session.identity.session_id,
            hello.client_name,
            grant.namespace,
            "huge pages" if session.arena.is_on_huge_pages else "pages of 4 KiB",
        )
        return session

    async def _open(
        self, connection: socket.socket, grant: Grant, hello: session_pb2.Hello
    ) -> Session:
        """Opens the session, for as long as the client waits for it.

        To make a large arena takes a while; one whose client has gone would keep memory from the
        next attempt. Raises RefusedError, HandshakeError.
        """
        is_operators = grant.admin and hello.for_administration
        has_no_use = hello.arena_bytes <= ALIGNMENT_BYTES
        opening = asyncio.ensure_future(
            self._sessions.open(
                grant,
                client_name=hello.client_name,
                arena_bytes=hello.arena_bytes,
                kind=SessionKind.OPERATOR if is_operators and has_no_use else SessionKind.CLIENT,
            )
        )
        leaving = asyncio.ensure_future(_end_of_file(connection))
        try:
            await asyncio.wait((opening, leaving), return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                # If the client has left all the same, the next wait for its end finds out.
                return opening.result()
            raise HandshakeError("the client left before its arena was made")
        finally:
            opening.cancel()
            leaving.cancel()
            await asyncio.gather(opening, leaving, return_exceptions=True)

    def _grant(self, connection: socket.socket) -> Grant:
        credentials = peer_credentials(connection)
        grant = self._rules.grant(credentials)
        if grant is None:
            refuse(
                Reason.ACCESS_REFUSED,
                f"user {credentials.uid} may not use this store; add it to a tenant in [access]",
            )
        return grant

    async def _welcome(self, connection: socket.socket, session: Session) -> None:
        """Sends the welcome with the descriptors; it fits into an empty socket buffer."""
        welcome = session_pb2.Welcome(
            epoch=self._epoch,
            session_id=session.identity.session_id,
            token=session.identity.token,
            namespace=session.identity.grant.namespace,
            arena_bytes=session.arena.byte_count,
            grpc_target=self._grpc_target,
            admin=session.identity.grant.admin,
        )
        data = frame(welcome)
        descriptors = [session.arena.descriptor, session.bell.descriptor]
        with contextlib.suppress(OSError):
            if socket.send_fds(connection, [data], descriptors) == len(data):
                return
        LOGGER.info("session %d: the client did not take its welcome", session.identity.session_id)


async def _end_of_file(connection: socket.socket) -> None:
    """Waits until the client is gone; one that sends anything more is cut off."""
    with contextlib.suppress(OSError):
        if await asyncio.get_running_loop().sock_recv(connection, 1):
            LOGGER.warning("a client wrote to the session socket after the handshake")


async def _receive_hello(connection: socket.socket) -> session_pb2.Hello:
    header = await _receive_exactly(connection, LENGTH.size)
    return parse(session_pb2.Hello, await _receive_exactly(connection, body_bytes(header)))


async def _receive_exactly(connection: socket.socket, byte_count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < byte_count:
        part = await loop.sock_recv(connection, byte_count - len(data))
        if not part:
            raise HandshakeError("the client closed the session socket")
        data += part
    return data


def _check_hello(hello: session_pb2.Hello) -> None:
    if hello.protocol_version != PROTOCOL_VERSION:
        refuse(
            Reason.FIELD_INVALID,
            f"the client speaks protocol version {hello.protocol_version}, the daemon "
            f"{PROTOCOL_VERSION}; install the same version of both",
        )
    if len(hello.client_name.encode()) > CLIENT_NAME_BYTES_MAX:
        refuse(Reason.FIELD_INVALID, f"client_name is longer than {CLIENT_NAME_BYTES_MAX} bytes")
    if hello.arena_bytes == 0:
        refuse(Reason.FIELD_INVALID, "arena_bytes must not be 0")
