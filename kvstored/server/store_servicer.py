"""The store service: put, match, read, pin, delete."""
# ruff: noqa: N802 - the contract names the methods

import math
import time
from collections.abc import Sequence

from kvstored.format.identity import ChunkId
from kvstored.server import fields
from kvstored.server.calls import Services, outcome, session_call
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.leases import Lease
from kvstored.server.session import Session
from kvstored.store.placement import Placement, PlacementError
from kvstored.store.plan import Order
from kvstored.store.read_stream import ReadStream
from kvstored.tiers.requests import (
    AppendOutcome,
    AppendRequest,
    NewChunk,
    PutOutcome,
    PutRequest,
    PutTicket,
    ReadRequest,
)
from kvstored_contract.board import Board
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import DEADLINE_MS_MAX, LEASE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2, store_pb2_grpc

INLINE_CHUNKS_MAX = 256
"""Look-ups of so few chunks are quicker than a change of thread."""
_DURABLE = store_pb2.Ack.Value("ACK_DURABLE")
_STAGED = store_pb2.Ack.Value("ACK_STAGED")


class StoreServicer(store_pb2_grpc.StoreServiceServicer):
    """Implements ``StoreService``."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @session_call
    async def Put(self, request: store_pb2.PutRequest, session: Session) -> store_pb2.PutReply:
        """Stores chunks that lie in the arena."""
        if request.ack not in (_STAGED, _DURABLE):
            refuse(Reason.FIELD_INVALID, f"ack is {request.ack}; it must be STAGED or DURABLE")
        put = put_request(request, session)
        services = self.services

        def run() -> list[PutTicket]:
            with session.transfer():
                return services.store.put(put)

        tickets = await services.in_put_thread(session, run)
        is_durable = request.ack == _DURABLE
        return store_pb2.PutReply(
            results=[await put_result(ticket, is_durable=is_durable) for ticket in tickets]
        )

    @session_call
    async def Append(
        self, request: store_pb2.AppendRequest, session: Session
    ) -> store_pb2.AppendReply:
        """Adds the rows of one step to open sequences."""
        append = append_request(request, session)
        services = self.services

        def run() -> list[AppendOutcome]:
            with session.transfer():
                return services.store.append(append)

        outcomes = await services.in_put_thread(session, run)
        return store_pb2.AppendReply(
            results=[
                store_pb2.AppendResult(
                    length_tokens=result.length_tokens,
                    reason=common_pb2.Reason.ValueType(result.reason),
                )
                for result in outcomes
            ]
        )

    @session_call
    async def Match(
        self, request: store_pb2.MatchRequest, session: Session
    ) -> store_pb2.MatchReply:
        """Finds the longest stored prefix, and pins it when a lease is asked for."""
        session.layout(request.layout_id)
        lease_ms = fields.bounded(request.lease_ms, "lease_ms", least=0, most=LEASE_MS_MAX)
        if not request.keys:
            return store_pb2.MatchReply()
        keys = fields.checked_keys(request.keys)
        matched = await self._look_up(session, keys)
        if lease_ms == 0 or matched == 0:
            return store_pb2.MatchReply(matched_chunks=matched)
        pinned = await self._pin(session, keys[:matched])
        # A chunk may have been evicted between the look-up and the pin.
        present = {chunk.key for chunk in pinned}
        matched = next((i for i, key in enumerate(keys[:matched]) if key not in present), matched)
        lease_id = self._lease(session, pinned, lease_ms)
        return store_pb2.MatchReply(matched_chunks=matched, lease_id=lease_id)

    @session_call
    async def Read(self, request: store_pb2.ReadRequest, session: Session) -> store_pb2.ReadReply:
        """Starts a read; its progress is on the board."""
        read = read_request(request, session)
        session.check_read_limit(len(read.keys))

        def run() -> ReadStream:
            with session.transfer():
                stream = self.services.store.read(read)
                session.add_read(stream, len(read.keys))
                return stream

        if len(read.keys) <= INLINE_CHUNKS_MAX:
            stream = run()
        else:
            stream = await self.services.in_call_thread(session, run)
        return store_pb2.ReadReply(dram_chunks=stream.dram_chunks, nvme_chunks=stream.nvme_chunks)

    @session_call
    async def Pin(self, request: store_pb2.PinRequest, session: Session) -> store_pb2.PinReply:
        """Pins those of the chunks that are stored."""
        session.layout(request.layout_id)
        lease_ms = fields.bounded(request.lease_ms, "lease_ms", least=1, most=LEASE_MS_MAX)
        keys = fields.checked_keys(request.keys)
        pinned = await self._pin(session, keys)
        present = {chunk.key for chunk in pinned}
        return store_pb2.PinReply(
            lease_id=self._lease(session, pinned, lease_ms),
            pinned_chunks=len(pinned),
            is_pinned=[key in present for key in keys],
        )

    @session_call
    async def Unpin(
        self, request: store_pb2.UnpinRequest, session: Session
    ) -> store_pb2.UnpinReply:
        """Ends a lease early."""
        chunks = session.leases.release(request.lease_id)
        if chunks is None:
            refuse(Reason.LEASE_UNKNOWN, f"lease {request.lease_id} is unknown or has expired")
        self.services.store.unpin(chunks)
        return store_pb2.UnpinReply()

    @session_call
    async def Delete(
        self, request: store_pb2.DeleteRequest, session: Session
    ) -> store_pb2.DeleteReply:
        """Deletes chunks and answers when that is durable."""
        keys = fields.checked_keys(request.keys)
        services = self.services
        deletion = await services.in_call_thread(
            session, services.store.delete, session.namespace_id, keys
        )
        return store_pb2.DeleteReply(deleted_chunks=await outcome(deletion))

    async def _look_up(self, session: Session, keys: tuple[bytes, ...]) -> int:
        services = self.services
        if len(keys) <= INLINE_CHUNKS_MAX:
            return services.store.match(session.namespace_id, keys)
        return await services.in_call_thread(
            session, services.store.match, session.namespace_id, keys
        )

    async def _pin(self, session: Session, keys: tuple[bytes, ...]) -> tuple[ChunkId, ...]:
        """Pins on the event loop, so that no pin can be lost with a cancelled call."""
        return self.services.store.pin(session.namespace_id, keys)

    def _lease(self, session: Session, chunks: tuple[ChunkId, ...], lease_ms: int) -> int:
        if not chunks:
            return 0
        lease = Lease(chunks=chunks, expires_at=time.monotonic() + lease_ms / 1000)
        try:
            return session.add_lease(lease)
        except RefusedError:
            self.services.store.unpin(chunks)
            raise


def put_request(request: store_pb2.PutRequest, session: Session) -> PutRequest:
    """The put that a message asks for; raises RefusedError or PlacementError."""
    layout = session.layout(request.layout_id)
    fields.check_chunk_count(len(request.chunks))
    chunks = fields.new_chunks(request.chunks, layout=layout)
    deadline_ms = fields.bounded(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)
    return PutRequest(
        namespace_id=session.namespace_id,
        layout=layout,
        chunks=chunks,
        source=session.arena.view,
        placement=source_placement(request.source, session=session, layout=layout, chunks=chunks),
        deadline=time.monotonic() + deadline_ms / 1000,
        is_wanted=session.is_open,
    )


def append_request(request: store_pb2.AppendRequest, session: Session) -> AppendRequest:
    """The append that a message asks for; raises RefusedError or LayoutError."""
    layout = session.layout(request.layout_id)
    items = fields.append_items(request, layout)
    arena = session.arena
    start, end = fields.snapshot_range(request, layout=layout, arena_bytes=arena.byte_count)
    return AppendRequest(
        namespace_id=session.namespace_id,
        session_id=session.identity.session_id,
        layout=layout,
        row_count=request.row_count,
        source=arena.view[start:end],
        items=items,
    )


def source_placement(
    message: common_pb2.Placement,
    *,
    session: Session,
    layout: StateLayout,
    chunks: Sequence[NewChunk],
) -> Placement:
    """A placement that holds for every length of chunk in the put.

    The longest chunk reaches farthest, the shortest has the smallest pieces, and all can be
    cut into equal pieces where their greatest common divisor can. Encoded slices are in one
    piece each.
    """
    if layout.is_encoded:
        slices = zip(*(chunk.slice_bytes for chunk in chunks), strict=True)
        return whole_placement(
            message, session=session, chunk_count=len(chunks), slice_bytes=list(map(max, slices))
        )
    token_counts = [chunk.token_count for chunk in chunks]
    layers = range(layout.layer_count)
    for token_count in {min(token_counts), max(token_counts)}:
        placement = fields.checked_placement(
            message,
            arena_bytes=session.arena.byte_count,
            chunk_count=len(chunks),
            slice_bytes=[layout.slice_bytes(layer, token_count) for layer in layers],
        )
    pieces, unit = placement.pieces_per_slice(len(chunks)), math.gcd(*token_counts)
    if any(layout.slice_bytes(layer, unit) % pieces for layer in layers):
        raise PlacementError(f"a slice cannot be cut into {pieces} equal pieces")
    return placement


def whole_placement(
    message: common_pb2.Placement, *, session: Session, chunk_count: int, slice_bytes: list[int]
) -> Placement:
    """A placement of encoded slices, which cannot be cut."""
    placement = fields.checked_placement(
        message,
        arena_bytes=session.arena.byte_count,
        chunk_count=chunk_count,
        slice_bytes=slice_bytes,
    )
    if placement.pieces_per_slice(chunk_count) > 1:
        raise PlacementError("a slice of a codec cannot be cut into pieces")
    return placement


def read_request(request: store_pb2.ReadRequest, session: Session) -> ReadRequest:
    """The read that a message asks for; raises RefusedError or PlacementError."""
    layout = session.layout(request.layout_id)
    keys = fields.checked_keys(request.keys)
    fields.check_layers(request.first_layer, request.layer_count, layout)
    deadline_ms = fields.bounded(request.deadline_ms, "deadline_ms", least=1, most=DEADLINE_MS_MAX)
    arena = session.arena
    layers = range(request.first_layer, request.first_layer + request.layer_count)
    slice_bytes = [layout.slice_bytes(layer) for layer in layers]
    if layout.is_encoded:
        placement = whole_placement(
            request.destination, session=session, chunk_count=len(keys), slice_bytes=slice_bytes
        )
    else:
        placement = fields.checked_placement(
            request.destination,
            arena_bytes=arena.byte_count,
            chunk_count=len(keys),
            slice_bytes=slice_bytes,
        )
    start, end = fields.board_range(
        request.board_offset,
        arena_bytes=arena.byte_count,
        chunk_count=len(keys),
        layer_count=request.layer_count,
        has_lengths=layout.is_encoded,
    )
    return ReadRequest(
        namespace_id=session.namespace_id,
        layout=layout,
        keys=keys,
        order=fields.enum_value(Order, request.order, "order"),
        first_layer=request.first_layer,
        layer_count=request.layer_count,
        arena=arena.view,
        takes_transfers=arena.is_on_huge_pages,
        placement=placement,
        board=Board(
            arena.view[start:end],
            chunk_count=len(keys),
            layer_count=request.layer_count,
            has_lengths=layout.is_encoded,
        ),
        notify=session.bell.ring,
        window_bytes=request.window_bytes,
        deadline=time.monotonic() + deadline_ms / 1000,
    )


async def put_result(ticket: PutTicket, *, is_durable: bool) -> store_pb2.PutResult:
    """The answer for one chunk; waits until it is durable where that was asked for."""
    reason = ticket.reason
    put_outcome = ticket.outcome
    if is_durable and ticket.durable is not None:
        reason = await outcome(ticket.durable)
        if reason is not Reason.UNSPECIFIED:
            put_outcome = PutOutcome.REJECTED
    return store_pb2.PutResult(
        outcome=store_pb2.PutOutcome.ValueType(put_outcome.value),
        reason=common_pb2.Reason.ValueType(reason),
    )
