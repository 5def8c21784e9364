"""A daemon for tests: the real handshake and real gRPC, chunks in a dictionary.

Reads are served at once, or (``holds_reads``) by the test through ``FakeRead``. A method
named in ``refusals`` is answered with that reason, one in ``silent`` without a reason.
"""

# ruff: noqa: N802 - gRPC names the methods of a servicer

import mmap
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from kvstored_contract import handshake
from kvstored_contract.board import Board, BoardWord, SliceState
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import REASON_METADATA, TOKEN_METADATA, Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    common_pb2,
    sequence_pb2,
    sequence_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    store_pb2,
    store_pb2_grpc,
)


@dataclass
class FakeSession:
    connection: socket.socket
    arena: memoryview
    eventfd: int
    layouts: dict[bytes, StateLayout] = field(default_factory=dict)

    def ring(self) -> None:
        os.eventfd_write(self.eventfd, 1)

    def piece(self, placement: Any, chunk: int, layer: int, byte_count: int) -> memoryview:
        offset = placement.base + layer * placement.layer_stride + chunk * placement.chunk_stride
        return self.arena[offset : offset + byte_count]


@dataclass
class FakeRead:
    session: FakeSession
    request: Any
    board: Board
    stored: dict[bytes, list[bytes]]

    def deliver(self, chunk: int, layer: int) -> None:
        slices = self.stored.get(self.request.keys[chunk])
        if slices is None:
            self.board.states[chunk, layer] = SliceState.MISSING
        else:
            data = slices[self.request.first_layer + layer]
            self.session.piece(self.request.destination, chunk, layer, len(data))[:] = data
            self.board.words[BoardWord.DRAM_BYTES] += np.uint64(len(data))
            self.board.states[chunk, layer] = SliceState.RESIDENT
        self.session.ring()

    def deliver_all(self) -> None:
        for chunk, layer in np.ndindex(self.board.states.shape):
            self.deliver(chunk, layer)

    def finish(self) -> None:
        self.board.states[self.board.states == SliceState.PENDING] = SliceState.SKIPPED
        self.board.words[BoardWord.FINISHED] = 1
        self.session.ring()


class FakeDaemon:
    """Started when it is made; ``stop`` is a sudden death."""

    def __init__(self, folder: Path, *, epoch: int = 1, namespace: str = "default") -> None:
        self.socket_path = folder / "session.sock"
        self.epoch = epoch
        self.namespace = namespace
        self.refusal = ""
        self.descriptor_count = 2
        self.announced_extra_bytes = 0
        self.stored: dict[bytes, list[bytes]] = {}
        self.sequences: dict[str, sequence_pb2.Sequence] = {}
        self.snapshots: list[bytes] = []
        self.append_reason = Reason.UNSPECIFIED
        self.leases: set[int] = set()
        self.requests: list[Any] = []
        self.refusals: dict[str, Reason] = {}
        self.silent: set[str] = set()
        self.holds_reads = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.held_reads: list[FakeRead] = []
        self.sessions: dict[str, FakeSession] = {}
        self._target = f"unix:{folder / f'grpc{epoch}.sock'}"
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8))
        services = Services(self)
        session_pb2_grpc.add_SessionServiceServicer_to_server(services, self._server)
        store_pb2_grpc.add_StoreServiceServicer_to_server(services, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(services, self._server)
        sequence_pb2_grpc.add_SequenceServiceServicer_to_server(
            SequenceServices(self), self._server
        )
        self._server.add_insecure_port(self._target)
        self._server.start()
        self.socket_path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.socket_path))
        self._listener.listen()
        self._acceptor = threading.Thread(target=self._accept)
        self._acceptor.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            hello, _ = handshake.receive(connection, session_pb2.Hello)
            self.requests.append(hello)
            self._welcome(connection, hello.arena_bytes)

    def _welcome(self, connection: socket.socket, arena_bytes: int) -> None:
        if self.refusal:
            welcome = session_pb2.Welcome(refusal=self.refusal, reason=Reason.LIMIT_EXCEEDED)
            connection.sendall(handshake.frame(welcome))
            connection.close()
            return
        token = f"token-{self.epoch}-{len(self.sessions)}"
        memfd = os.memfd_create("fake-arena")
        os.ftruncate(memfd, arena_bytes)
        eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.sessions[token] = FakeSession(
            connection, memoryview(mmap.mmap(memfd, arena_bytes)), eventfd
        )
        welcome = session_pb2.Welcome(
            epoch=self.epoch,
            session_id=len(self.sessions),
            token=token,
            namespace=self.namespace,
            arena_bytes=arena_bytes + self.announced_extra_bytes,
            grpc_target=self._target,
        )
        descriptors = [memfd, eventfd][: self.descriptor_count]
        socket.send_fds(connection, [handshake.frame(welcome)], descriptors)
        os.close(memfd)

    def stop(self) -> None:
        """Dies: sessions see end of file, calls fail."""
        self.gate.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        for session in self.sessions.values():
            session.connection.close()
            os.close(session.eventfd)
        self.sessions.clear()
        self._server.stop(None).wait()

    def enter(self, request: Any, context: grpc.ServicerContext) -> FakeSession:
        """What every method does first: authenticate, note, refuse when told to."""
        metadata = dict(context.invocation_metadata())
        session = self.sessions.get(str(metadata.get(TOKEN_METADATA)))
        if session is None:
            self.refuse(context, Reason.TOKEN_UNKNOWN)
        self.requests.append(request)
        name = type(request).__name__
        self.entered.release()
        self.gate.wait(30)
        if name in self.silent:
            context.abort(grpc.StatusCode.UNKNOWN, "a bug")
        if name in self.refusals:
            self.refuse(context, self.refusals[name])
        assert session is not None
        return session

    def refuse(self, context: grpc.ServicerContext, reason: Reason) -> None:
        context.set_trailing_metadata(((REASON_METADATA, reason.name),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"refused: {reason.name}")


class Services(
    session_pb2_grpc.SessionServiceServicer,
    store_pb2_grpc.StoreServiceServicer,
    admin_pb2_grpc.AdminServiceServicer,
):
    def __init__(self, daemon: FakeDaemon) -> None:
        self.daemon = daemon

    def RegisterLayout(self, request: Any, context: Any) -> session_pb2.RegisterLayoutReply:
        session = self.daemon.enter(request, context)
        layout = StateLayout.from_proto(request.layout)
        session.layouts[layout.layout_id] = layout
        return session_pb2.RegisterLayoutReply(layout_id=layout.layout_id)

    def Put(self, request: Any, context: Any) -> store_pb2.PutReply:
        session = self.daemon.enter(request, context)
        layout = session.layouts[request.layout_id]
        outcomes = []
        for index, chunk in enumerate(request.chunks):
            if chunk.key in self.daemon.stored:
                outcomes.append(store_pb2.PUT_OUTCOME_EXISTED)
                continue
            self.daemon.stored[chunk.key] = [
                bytes(
                    session.piece(
                        request.source,
                        index,
                        layer,
                        layout.slice_bytes(layer, chunk.token_count),
                    )
                )
                for layer in range(layout.layer_count)
            ]
            outcomes.append(store_pb2.PUT_OUTCOME_STORED)
        return store_pb2.PutReply(
            results=[store_pb2.PutResult(outcome=outcome) for outcome in outcomes]
        )

    def Append(self, request: Any, context: Any) -> store_pb2.AppendReply:
        session = self.daemon.enter(request, context)
        geometry = SnapshotGeometry(session.layouts[request.layout_id], request.row_count)
        end = request.snapshot_offset + geometry.byte_count
        self.daemon.snapshots.append(bytes(session.arena[request.snapshot_offset : end]))
        return store_pb2.AppendReply(
            results=[
                store_pb2.AppendResult(
                    length_tokens=item.first_token + item.token_count,
                    reason=common_pb2.Reason.ValueType(self.daemon.append_reason),
                )
                for item in request.items
            ]
        )

    def Match(self, request: Any, context: Any) -> store_pb2.MatchReply:
        self.daemon.enter(request, context)
        count = 0
        while count < len(request.keys) and request.keys[count] in self.daemon.stored:
            count += 1
        lease_id = self._lease() if request.lease_ms and count else 0
        return store_pb2.MatchReply(matched_chunks=count, lease_id=lease_id)

    def Read(self, request: Any, context: Any) -> store_pb2.ReadReply:
        session = self.daemon.enter(request, context)
        board = Board(
            session.arena[request.board_offset :],
            chunk_count=len(request.keys),
            layer_count=request.layer_count,
        )
        read = FakeRead(session, request, board, self.daemon.stored)
        if self.daemon.holds_reads:
            self.daemon.held_reads.append(read)
        else:
            read.deliver_all()
            read.finish()
        return store_pb2.ReadReply(dram_chunks=len(request.keys))

    def Pin(self, request: Any, context: Any) -> store_pb2.PinReply:
        self.daemon.enter(request, context)
        is_pinned = [key in self.daemon.stored for key in request.keys]
        return store_pb2.PinReply(
            lease_id=self._lease() if any(is_pinned) else 0,
            pinned_chunks=sum(is_pinned),
            is_pinned=is_pinned,
        )

    def Unpin(self, request: Any, context: Any) -> store_pb2.UnpinReply:
        self.daemon.enter(request, context)
        if request.lease_id not in self.daemon.leases:
            self.daemon.refuse(context, Reason.LEASE_UNKNOWN)
        self.daemon.leases.remove(request.lease_id)
        return store_pb2.UnpinReply()

    def Delete(self, request: Any, context: Any) -> store_pb2.DeleteReply:
        self.daemon.enter(request, context)
        found = [key for key in request.keys if self.daemon.stored.pop(key, None) is not None]
        return store_pb2.DeleteReply(deleted_chunks=len(found))

    def Stats(self, request: Any, context: Any) -> admin_pb2.StatsReply:
        self.daemon.enter(request, context)
        return admin_pb2.StatsReply(epoch=self.daemon.epoch, chunk_count=len(self.daemon.stored))

    def ListChunks(self, request: Any, context: Any) -> admin_pb2.ListChunksReply:
        self.daemon.enter(request, context)
        keys = [key for key in self.daemon.stored if key.hex().startswith(request.key_prefix)]
        return admin_pb2.ListChunksReply(
            chunks=[admin_pb2.ChunkInfo(key=key) for key in keys[: request.limit]],
            truncated=len(keys) > request.limit,
        )

    def Inspect(self, request: Any, context: Any) -> admin_pb2.InspectReply:
        self.daemon.enter(request, context)
        for key in self.daemon.stored:
            if key.hex().startswith(request.key_prefix):
                return admin_pb2.InspectReply(chunk=admin_pb2.ChunkInfo(key=key))
        self.daemon.refuse(context, Reason.NOT_STORED)
        raise AssertionError("refuse aborts")

    def _lease(self) -> int:
        lease_id = len(self.daemon.requests) + 1
        self.daemon.leases.add(lease_id)
        return lease_id


class SequenceServices(sequence_pb2_grpc.SequenceServiceServicer):
    def __init__(self, daemon: FakeDaemon) -> None:
        self.daemon = daemon

    def _known(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        self.daemon.enter(request, context)
        if request.name not in self.daemon.sequences:
            self.daemon.refuse(context, Reason.SEQUENCE_UNKNOWN)
        return self.daemon.sequences[request.name]

    def Create(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        self.daemon.enter(request, context)
        if request.name in self.daemon.sequences:
            self.daemon.refuse(context, Reason.SEQUENCE_EXISTS)
        sequence = sequence_pb2.Sequence(
            name=request.name,
            layout_id=request.layout_id,
            keys=request.keys,
            ephemeral=request.ephemeral,
        )
        self.daemon.sequences[request.name] = sequence
        return sequence

    def Get(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        return self._known(request, context)

    def AppendChunks(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        sequence = self._known(request, context)
        if len(sequence.keys) != request.expected_chunks:
            self.daemon.refuse(context, Reason.SEQUENCE_CONFLICT)
        sequence.keys.extend(request.keys)
        return sequence

    def Fork(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        source = self._known(request, context)
        fork = sequence_pb2.Sequence(
            name=request.new_name,
            layout_id=source.layout_id,
            keys=source.keys[: request.keep_chunks or None],
        )
        self.daemon.sequences[request.new_name] = fork
        return fork

    def TruncateFront(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        sequence = self._known(request, context)
        del sequence.keys[: request.drop_chunks]
        sequence.dropped_chunks += request.drop_chunks
        return sequence

    def TruncateBack(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        sequence = self._known(request, context)
        sequence.staged_tokens -= request.drop_tokens
        del sequence.keys[len(sequence.keys) - request.drop_chunks :]
        return sequence

    def Flush(self, request: Any, context: Any) -> sequence_pb2.Sequence:
        sequence = self._known(request, context)
        sequence.tail_key = request.tail_key
        sequence.staged_tokens = sequence.durable_tokens = request.expected_tokens
        return sequence

    def Delete(self, request: Any, context: Any) -> sequence_pb2.DeleteSequenceReply:
        del self.daemon.sequences[self._known(request, context).name]
        return sequence_pb2.DeleteSequenceReply()

    def List(self, request: Any, context: Any) -> sequence_pb2.ListSequencesReply:
        self.daemon.enter(request, context)
        return sequence_pb2.ListSequencesReply(names=sorted(self.daemon.sequences))
