"""The store service: put, match, read, pin, delete."""
# ruff: noqa: N802 - the contract names the methods

import functools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

from kvstored.format.identity import ChunkId
from kvstored.server import fields
from kvstored.server.calls import Services, session_call
from kvstored.server.errors import RefusedError, refuse
from kvstored.server.held.leases import Lease
from kvstored.server.pinned import Pinned, matched_chunks, pinned_chunks
from kvstored.server.session import Session
from kvstored.server.store_requests import append_request, put_request, read_request
from kvstored.server.waits import all_settled, deadline_in, in_slices, is_done_by, outcome
from kvstored.store.read.read_stream import ReadStream
from kvstored.tiers.chunks.requests import (
    AppendOutcome,
    ChangesAnswer,
    PutTicket,
)
from kvstored_contract.limits import DEADLINE_MS_MAX, LEASE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2, store_pb2_grpc

INLINE_CHUNKS_MAX = 256
"""Look-ups of so few chunks in memory are quicker than a change of thread; puts of more are large
calls."""
INLINE_READ_CHUNKS_MAX = 16
"""Reads of so few chunks are planned on the event loop: more of them might wait for the index's
pages, one after the other."""
INLINE_BLOCKS_MAX = 256
"""Block offsets of a read that is planned there."""
ResultT = TypeVar("ResultT")
_DURABLE = store_pb2.Ack.Value("ACK_DURABLE")
_STAGED = store_pb2.Ack.Value("ACK_STAGED")


class StoreServicer(store_pb2_grpc.StoreServiceServicer):
    """Implements ``StoreService``."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @session_call
    async def Put(self, request: store_pb2.PutRequest, session: Session) -> store_pb2.PutReply:
        """Stores chunks that lie in the arena.

        A durable put waits for the devices until its deadline; the answer says which chunks
        are only staged by then.
        """
        if request.ack not in (_STAGED, _DURABLE):
            refuse(Reason.FIELD_INVALID, f"ack is {request.ack}; it must be STAGED or DURABLE")
        is_durable = request.ack == _DURABLE
        deadline_ms = fields.bounded(
            request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX
        )
        deadline = time.monotonic() + deadline_ms / 1000
        services = self.services

        def run() -> tuple[list[PutTicket], Future[None]]:
            put = put_request(request, session, deadline=deadline)
            with session.arena_use.transfer():
                tickets = services.store.put_path.put(put)
            return tickets, all_settled(
                ticket.durable for ticket in tickets if is_durable and ticket.durable is not None
            )

        if len(request.chunks) <= INLINE_CHUNKS_MAX:
            tickets, settled = await services.in_put_thread(session, deadline, run)
        else:
            tickets, settled = await services.in_large_put_thread(session, deadline, run)
        await is_done_by(settled, deadline)
        reply = store_pb2.PutReply()
        async for part in in_slices(tickets):
            reply.results.extend(put_result(ticket, is_durable=is_durable) for ticket in part)
        return reply

    @session_call
    async def Append(
        self, request: store_pb2.AppendRequest, session: Session
    ) -> store_pb2.AppendReply:
        """Adds the rows of one step to open sequences."""
        deadline = deadline_in(
            fields.bounded(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)
        )
        services = self.services

        def run() -> list[AppendOutcome]:
            append = append_request(request, session, deadline=deadline)
            with session.arena_use.transfer():
                return services.store.append_path.append(append)

        reply = store_pb2.AppendReply()
        async for part in in_slices(await services.in_put_thread(session, deadline, run)):
            reply.results.extend(
                store_pb2.AppendResult(
                    length_tokens=result.length_tokens,
                    reason=common_pb2.Reason.ValueType(result.reason),
                )
                for result in part
            )
        return reply

    @session_call
    async def Match(
        self, request: store_pb2.MatchRequest, session: Session
    ) -> store_pb2.MatchReply:
        """Finds the longest stored prefix, and pins it when a lease is asked for."""
        session.layouts.find(request.layout_id)
        lease_ms = fields.bounded(request.lease_ms, "lease_ms", least=0, most=LEASE_MS_MAX)
        if not request.keys:
            return store_pb2.MatchReply()
        deadline = deadline_in()
        services = self.services

        def look_up() -> tuple[bytes, ...]:
            keys = fields.checked_keys(request.keys)
            return keys[: matched_chunks(services.store, session.namespace_id, keys)]

        keys = await self._run(session, deadline, len(request.keys), look_up)
        if lease_ms == 0 or not keys:
            return store_pb2.MatchReply(matched_chunks=len(keys))
        # A chunk may have been evicted between the look-up and the pin.
        pinned = await self._pin(session, deadline, keys)
        lease_id = await self._lease(session, pinned.chunks, lease_ms)
        return store_pb2.MatchReply(matched_chunks=pinned.prefix_length, lease_id=lease_id)

    @session_call
    async def Read(self, request: store_pb2.ReadRequest, session: Session) -> store_pb2.ReadReply:
        """Starts a read; its progress is on the board."""
        deadline_ms = fields.bounded(
            request.deadline_ms, "deadline_ms", least=1, most=DEADLINE_MS_MAX
        )
        deadline = time.monotonic() + deadline_ms / 1000

        def run() -> ReadStream:
            read = read_request(request, session, deadline=deadline)
            session.arena_use.check_read_limit(len(read.keys))
            with session.arena_use.transfer():
                stream = self.services.store.read_path.read(read)
                session.arena_use.add_read(stream, len(read.keys))
                return stream

        is_small = len(request.destination.block_offsets) <= INLINE_BLOCKS_MAX
        if is_small and len(request.keys) <= INLINE_READ_CHUNKS_MAX:
            stream = run()
        else:
            # To its end: the arena is not the client's again before.
            stream = await self.services.in_large_thread(session, deadline, run)
        return store_pb2.ReadReply(
            dram_chunks=stream.task.dram_chunks, nvme_chunks=stream.task.nvme_chunks
        )

    @session_call
    async def Pin(self, request: store_pb2.PinRequest, session: Session) -> store_pb2.PinReply:
        """Pins those of the chunks that are stored."""
        session.layouts.find(request.layout_id)
        lease_ms = fields.bounded(request.lease_ms, "lease_ms", least=1, most=LEASE_MS_MAX)
        pinned = await self._pin(session, deadline_in(), request.keys)
        return store_pb2.PinReply(
            lease_id=await self._lease(session, pinned.chunks, lease_ms),
            pinned_chunks=len(pinned.chunks),
            is_pinned=pinned.are_pinned,
        )

    @session_call
    async def Unpin(
        self, request: store_pb2.UnpinRequest, session: Session
    ) -> store_pb2.UnpinReply:
        """Ends a lease early."""
        lease = session.leases.release(request.lease_id)
        if lease is None:
            refuse(Reason.LEASE_UNKNOWN, f"lease {request.lease_id} is unknown or has expired")
        await self.services.sessions.give_back([lease])
        return store_pb2.UnpinReply()

    @session_call
    async def Delete(
        self, request: store_pb2.DeleteRequest, session: Session
    ) -> store_pb2.DeleteReply:
        """Deletes chunks and answers when that is durable."""
        deadline = deadline_in()
        services = self.services

        def delete() -> Future[int]:
            return services.store.delete(session.namespace_id, fields.checked_keys(request.keys))

        deletion = await services.in_call_thread(session, deadline, delete)
        return store_pb2.DeleteReply(deleted_chunks=await outcome(deletion, deadline))

    @session_call
    async def Changes(
        self, request: store_pb2.ChangesRequest, session: Session
    ) -> store_pb2.ChangesReply:
        """Tells which chunks of the caller's namespace came and went."""
        store = self.services.store

        def look() -> ChangesAnswer:
            return store.changes(
                session.namespace_id,
                fields.checked_keys(request.keys) if request.keys else (),
                epoch=request.epoch,
                after_sequence=request.after_sequence,
            )

        answer = await self.services.in_large_thread(session, deadline_in(), look)
        return changes_reply(answer)

    async def _run(
        self, session: Session, deadline: float, chunk_count: int, look: Callable[[], ResultT]
    ) -> ResultT:
        """Looks chunks up: here where they are few, else on a thread."""
        if chunk_count <= INLINE_CHUNKS_MAX:
            return look()
        return await self.services.in_large_thread(session, deadline, look)

    async def _pin(self, session: Session, deadline: float, keys: Sequence[bytes]) -> Pinned:
        """Pins chunks; what nobody waits for any more by then is unpinned again."""
        store = self.services.store
        taken: Future[Pinned] = Future()

        def pin() -> Pinned:
            pinned = pinned_chunks(store, session.namespace_id, fields.checked_keys(keys))
            taken.set_result(pinned)
            return pinned

        try:
            return await self._run(session, deadline, len(keys), pin)
        except BaseException:
            taken.add_done_callback(lambda done: store.unpin(done.result().chunks))
            raise

    async def _lease(self, session: Session, chunks: tuple[ChunkId, ...], lease_ms: int) -> int:
        if not chunks:
            return 0
        lease = Lease(chunks=chunks, expires_at=time.monotonic() + lease_ms / 1000)
        try:
            return session.add_lease(lease)
        except RefusedError:
            await self.services.sessions.give_back([lease])
            raise


def changes_reply(answer: ChangesAnswer) -> store_pb2.ChangesReply:
    """The changes as they travel."""
    span = answer.span
    return store_pb2.ChangesReply(
        epoch=answer.epoch,
        last_sequence=span.last_sequence,
        lost=span.is_lost,
        changes=[
            store_pb2.Change(
                kind=store_pb2.ChangeKind.ValueType(change.kind.value),
                key=change.key,
                note=change.note,
            )
            for change in span.changes
        ],
        has_more=span.has_more,
        is_stored=answer.are_stored,
    )


def put_result(ticket: PutTicket, *, is_durable: bool) -> store_pb2.PutResult:
    """The answer for one chunk, as durable as it is now where that was asked for."""
    reason = ticket.reason
    put_outcome = store_pb2.PutOutcome.ValueType(ticket.outcome.value)
    if is_durable and ticket.durable is not None:
        if not ticket.durable.done():
            put_outcome, reason = store_pb2.PUT_OUTCOME_STAGED, Reason.DEADLINE
        elif (reason := ticket.durable.result()) is not Reason.UNSPECIFIED:
            put_outcome = store_pb2.PUT_OUTCOME_REJECTED
    return _result(put_outcome, reason)


@functools.cache
def _result(outcome: store_pb2.PutOutcome.ValueType, reason: Reason) -> store_pb2.PutResult:
    """One message for all chunks that are answered the same; nobody may change it."""
    return store_pb2.PutResult(outcome=outcome, reason=common_pb2.Reason.ValueType(reason))
