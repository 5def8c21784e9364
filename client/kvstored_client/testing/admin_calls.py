"""The calls of the session service and of the admin service."""

from typing import TYPE_CHECKING

from kvstored_client.testing import checks
from kvstored_client.testing.memory_session import MemorySession
from kvstored_client.testing.refusal import refuse
from kvstored_contract.layout import LayoutError, StateLayout
from kvstored_contract.limits import KEY_BYTES, LIST_CHUNKS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, session_pb2

if TYPE_CHECKING:
    from kvstored_client.testing.store import MemoryStore


def register(
    _store: "MemoryStore", session: MemorySession, request: session_pb2.RegisterLayoutRequest
) -> session_pb2.RegisterLayoutReply:
    """Makes a layout usable in this session."""
    try:
        layout = StateLayout.from_proto(request.layout)
    except LayoutError as error:
        refuse(Reason.LAYOUT_INVALID, str(error))
    session.layouts[layout.layout_id] = layout
    return session_pb2.RegisterLayoutReply(layout_id=layout.layout_id)


def ping(
    store: "MemoryStore", _session: MemorySession, _request: session_pb2.PingRequest
) -> session_pb2.PingReply:
    """Answers with the epoch."""
    return session_pb2.PingReply(epoch=store.epoch, version="memory")


def stats(
    store: "MemoryStore", _session: MemorySession, _request: admin_pb2.StatsRequest
) -> admin_pb2.StatsReply:
    """The whole store at this moment."""
    return admin_pb2.StatsReply(
        epoch=store.epoch,
        chunk_count=len(store.chunks),
        dram_chunk_count=len(store.chunks),
        sequence_count=sum(not session_id for _, session_id in store.sequences),
        session_count=len(store.sessions),
        lease_count=store.leases_in_use,
        reads_in_flight_count=sum(not read.is_finished for read in store.reads),
    )


def list_chunks(
    store: "MemoryStore", _session: MemorySession, request: admin_pb2.ListChunksRequest
) -> admin_pb2.ListChunksReply:
    """Chunks whose key begins with a prefix."""
    keys = _keys(store, request.key_prefix)
    limit = checks.check_bounds(request.limit, "limit", least=1, most=LIST_CHUNKS_MAX)
    return admin_pb2.ListChunksReply(
        chunks=[_info(store, key) for key in keys[:limit]], truncated=len(keys) > limit
    )


def inspect(
    store: "MemoryStore", _session: MemorySession, request: admin_pb2.InspectRequest
) -> admin_pb2.InspectReply:
    """One chunk with its slices; their checksums are 0 here."""
    keys = _keys(store, request.key_prefix)
    if not keys:
        refuse(Reason.NOT_STORED, f"no key of a stored chunk begins with {request.key_prefix!r}")
    chunk = store.chunks[keys[0]]
    return admin_pb2.InspectReply(
        chunk=_info(store, keys[0]),
        slices=[admin_pb2.SliceInfo(bytes=len(part)) for part in chunk.slices],
        parent_key=chunk.parent_key,
    )


def _keys(store: "MemoryStore", text: str) -> list[bytes]:
    prefix = text.lower()
    if len(prefix) > 2 * KEY_BYTES or prefix.strip("0123456789abcdef"):
        refuse(Reason.FIELD_INVALID, f"{text!r} is not the beginning of a key")
    return sorted(key for key in store.chunks if key.hex().startswith(prefix))


def _info(store: "MemoryStore", key: bytes) -> admin_pb2.ChunkInfo:
    chunk = store.chunks[key]
    return admin_pb2.ChunkInfo(
        key=key,
        layout_id=chunk.layout_id,
        token_count=chunk.token_count,
        epoch=store.epoch,
        in_dram=True,
    )
