"""The calls of the store service: put, match, read, pin, unpin, delete."""

from typing import TYPE_CHECKING

from kvstored_client.testing import checks
from kvstored_client.testing.addresses import (
    check_put_placement,
    check_read_placement,
    fragments,
    fragments_per_slice,
)
from kvstored_client.testing.faults import CallName
from kvstored_client.testing.memory_session import MemoryLease, MemorySession
from kvstored_client.testing.refusal import refuse
from kvstored_client.testing.served_read import ServedRead
from kvstored_client.testing.stored_chunk import StoredChunk
from kvstored_contract.board import Board
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import LEASE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2

if TYPE_CHECKING:
    from kvstored_client.testing.store import MemoryStore


def put(
    store: "MemoryStore", session: MemorySession, request: store_pb2.PutRequest
) -> store_pb2.PutReply:
    """Stores chunks that lie in the arena; once one is rejected, so are all new ones behind it."""
    layout = session.layout(request.layout_id)
    checks.check_put(request, layout)
    check_put_placement(request, layout, arena_bytes=len(session.arena))
    number = store.call_counts[CallName.PUT] - 1
    results: list[store_pb2.PutResult] = []
    rejected: Reason | None = None
    for index, chunk in enumerate(request.chunks):
        if chunk.key in store.chunks:
            results.append(store_pb2.PutResult(outcome=store_pb2.PUT_OUTCOME_EXISTED))
            continue
        rejected = rejected or store.faults.put_rejection(number, index)
        if rejected:
            reason = common_pb2.Reason.ValueType(rejected)
            results.append(
                store_pb2.PutResult(outcome=store_pb2.PUT_OUTCOME_REJECTED, reason=reason)
            )
            continue
        store.chunks[chunk.key] = _taken(session, request, index, layout)
        if store.faults.devices_are_late and request.ack == store_pb2.ACK_DURABLE:
            results.append(
                store_pb2.PutResult(
                    outcome=store_pb2.PUT_OUTCOME_STAGED, reason=common_pb2.REASON_DEADLINE
                )
            )
            continue
        results.append(store_pb2.PutResult(outcome=store_pb2.PUT_OUTCOME_STORED))
    return store_pb2.PutReply(results=results)


def _taken(
    session: MemorySession, request: store_pb2.PutRequest, index: int, layout: StateLayout
) -> StoredChunk:
    chunk = request.chunks[index]
    sizes = chunk.slice_bytes or [
        layout.slice_bytes(layer, chunk.token_count) for layer in range(layout.layer_count)
    ]
    count = len(request.chunks)
    return StoredChunk(
        layout_id=layout.layout_id,
        slices=tuple(
            b"".join(
                session.arena[start : start + fragment_bytes]
                for start, fragment_bytes in fragments(
                    request.source, chunk=index, layer=layer, byte_count=size, chunk_count=count
                )
            )
            for layer, size in enumerate(sizes)
        ),
        token_count=chunk.token_count,
        parent_key=chunk.parent_key,
        note=chunk.note,
    )


def match(
    store: "MemoryStore", session: MemorySession, request: store_pb2.MatchRequest
) -> store_pb2.MatchReply:
    """Finds the longest stored prefix, and pins it when a lease is asked for."""
    session.layout(request.layout_id)
    checks.check_bounds(request.lease_ms, "lease_ms", least=0, most=LEASE_MS_MAX)
    if not request.keys:
        return store_pb2.MatchReply()
    checks.check_keys(request.keys)
    missing = (index for index, key in enumerate(request.keys) if key not in store.chunks)
    count = next(missing, len(request.keys))
    keys = tuple(request.keys[:count]) if request.lease_ms else ()
    lease_id = _lease(store, session, keys, request.lease_ms)
    return store_pb2.MatchReply(matched_chunks=count, lease_id=lease_id)


def read(
    store: "MemoryStore", session: MemorySession, request: store_pb2.ReadRequest
) -> store_pb2.ReadReply:
    """Starts a read."""
    layout = session.layout(request.layout_id)
    end = checks.check_read(request, layout, arena_bytes=len(session.arena))
    check_read_placement(request, layout, arena_bytes=len(session.arena))
    sources = tuple(_source(store, request, key, layout) for key in request.keys)
    served = ServedRead(
        session,
        request,
        layout=layout,
        board=Board(
            session.arena[request.board_offset : end],
            chunk_count=len(request.keys),
            layer_count=request.layer_count,
            has_lengths=layout.is_encoded,
        ),
        sources=sources,
        faults=store.faults,
        clock=store.clock,
    )
    store.reads.append(served)
    served.start()
    found = len(sources) - sources.count(None)
    from_devices = store.faults.from_devices
    return store_pb2.ReadReply(
        dram_chunks=0 if from_devices else found, nvme_chunks=found if from_devices else 0
    )


def _source(
    store: "MemoryStore", request: store_pb2.ReadRequest, key: bytes, layout: StateLayout
) -> StoredChunk | None:
    """What is stored of a chunk in this layout, if its slices can be cut as the read wants."""
    chunk = store.chunks.get(key)
    if chunk is None or chunk.layout_id != layout.layout_id:
        return None
    count = fragments_per_slice(request.destination, len(request.keys))
    return None if any(len(part) % count for part in chunk.slices) else chunk


def pin(
    store: "MemoryStore", session: MemorySession, request: store_pb2.PinRequest
) -> store_pb2.PinReply:
    """Pins those of the chunks that are stored."""
    session.layout(request.layout_id)
    checks.check_bounds(request.lease_ms, "lease_ms", least=1, most=LEASE_MS_MAX)
    checks.check_keys(request.keys)
    keys = tuple(key for key in request.keys if key in store.chunks)
    return store_pb2.PinReply(
        lease_id=_lease(store, session, keys, request.lease_ms),
        pinned_chunks=len(keys),
        is_pinned=[key in store.chunks for key in request.keys],
    )


def unpin(
    store: "MemoryStore", session: MemorySession, request: store_pb2.UnpinRequest
) -> store_pb2.UnpinReply:
    """Ends a lease early."""
    lease = session.leases.pop(request.lease_id, None)
    if lease is None or lease.expires_at <= store.clock():
        refuse(Reason.LEASE_UNKNOWN, f"lease {request.lease_id} is unknown or has expired")
    return store_pb2.UnpinReply()


def delete(
    store: "MemoryStore", _session: MemorySession, request: store_pb2.DeleteRequest
) -> store_pb2.DeleteReply:
    """Deletes chunks."""
    checks.check_keys(request.keys)
    found = [key for key in request.keys if store.chunks.pop(key, None) is not None]
    return store_pb2.DeleteReply(deleted_chunks=len(found))


def changes(
    store: "MemoryStore", _session: MemorySession, request: store_pb2.ChangesRequest
) -> store_pb2.ChangesReply:
    """Tells what came and went."""
    if request.keys:
        checks.check_keys(request.keys)
    return store.changes.answer(request, store.chunks, store.epoch)


def _lease(
    store: "MemoryStore", session: MemorySession, keys: tuple[bytes, ...], lease_ms: int
) -> int:
    if not keys:
        return 0
    lease_id = store.next_lease_id()
    session.leases[lease_id] = MemoryLease(keys, store.clock() + lease_ms / 1000)
    return lease_id
