"""A store in memory behind a real Unix socket and real gRPC, as clients reach the daemon."""

import mmap
import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from kvstored_client.testing.calls import SERVED_CALLS, ServedCall
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.refusal import GoneError, RefusedError, SilentError
from kvstored_client.testing.store import MemoryStore
from kvstored_contract import handshake, session_socket
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA
from kvstored_protos.v1 import session_pb2

THREADS_MAX = 16


class MemoryDaemon:
    """Serves ``store`` at ``socket_path`` in ``folder``, from its making until ``stop``.

    Every ``Client`` and ``AsyncClient`` can connect, from other processes too. Here the store
    does not hear when the engine cancels a read or waits for one: it looks at the board when it
    delivers, so that HELD reads are over when the test delivers or finishes them.
    """

    def __init__(self, store: MemoryStore, folder: Path) -> None:
        store.start()
        self.store = store
        self.socket_path = folder / "session.sock"
        self._target = f"unix:{folder / f'grpc{store.epoch}.sock'}"
        self._server = grpc.server(ThreadPoolExecutor(max_workers=THREADS_MAX))
        self._server.add_generic_rpc_handlers((_Handler(store),))
        self._server.add_insecure_port(self._target)
        self._server.start()
        self.socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.socket_path))
        self._listener.listen()
        self._acceptor = threading.Thread(target=self._accept, name="kvstored-memory-daemon")
        self._acceptor.start()

    def stop(self) -> None:
        """Dies: sessions see end of file, calls fail, nobody can connect."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.store.kill()
        self._server.stop(None).wait()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            try:
                hello, _ = session_socket.receive(connection, session_pb2.Hello)
                self.store.note(hello)
                self._admit(connection, hello.arena_bytes)
            except OSError:
                connection.close()

    def _admit(self, connection: socket.socket, arena_bytes: int) -> None:
        arena = os.memfd_create("kvstored-memory-arena")
        os.ftruncate(arena, arena_bytes)
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:

            def make(session_id: int) -> MemorySession:
                memory = memoryview(mmap.mmap(arena, arena_bytes))
                return MemorySession(
                    session_id, memory, connection=connection.dup(), eventfd=os.dup(eventfd)
                )

            welcome = self.store.admit(make)
            if not welcome.refusal:
                welcome.grpc_target = self._target
            self._send(connection, welcome, [] if welcome.refusal else [arena, eventfd])
        finally:
            connection.close()
            os.close(arena)
            os.close(eventfd)

    def _send(
        self, connection: socket.socket, welcome: session_pb2.Welcome, descriptors: Sequence[int]
    ) -> None:
        socket.send_fds(connection, [handshake.frame(welcome)], descriptors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Handler(grpc.GenericRpcHandler):
    """All methods of the contract."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        call = SERVED_CALLS.get(details.method)
        if call is None:
            return None

        def serve(request: Message, context: grpc.ServicerContext) -> Message:
            return self._serve(details.method, call, request, context)

        return grpc.unary_unary_rpc_method_handler(
            serve,
            request_deserializer=call.request.FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )

    def _serve(
        self, path: str, call: ServedCall, request: Message, context: grpc.ServicerContext
    ) -> Message:
        time.sleep(self._store.faults.delays_s.get(call.name, 0.0))
        token = str(dict(context.invocation_metadata()).get(TOKEN_METADATA))
        try:
            return self._store.answer(token, path, request)
        except RefusedError as refusal:
            context.set_trailing_metadata(((REASON_METADATA, refusal.reason.name),))
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        except GoneError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        except SilentError as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        raise AssertionError("abort raises")
