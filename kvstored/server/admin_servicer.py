"""The admin service: what the store holds and has done."""
# ruff: noqa: N802 - the contract names the methods

import time
from dataclasses import asdict

from kvstored.server import fields
from kvstored.server.calls import Services, session_call
from kvstored.server.errors import refuse
from kvstored.server.session import Session
from kvstored.server.waits import deadline_in
from kvstored.tiers.chunks.status import ChunkStatus
from kvstored_contract.limits import KEY_BYTES, LIST_CHUNKS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc

_HEX_DIGITS = frozenset("0123456789abcdef")


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Implements ``AdminService``, for administrators only."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._started_at = time.monotonic()

    @session_call
    async def Stats(
        self, request: admin_pb2.StatsRequest, session: Session
    ) -> admin_pb2.StatsReply:
        """The whole store at this moment."""
        _ = request
        check_admin(session)
        services = self.services
        stats = await services.in_call_thread(
            session, deadline_in(), services.store.inspection.stats
        )
        return admin_pb2.StatsReply(
            epoch=stats.epoch,
            uptime_ms=int((time.monotonic() - self._started_at) * 1000),
            chunk_count=stats.chunk_count,
            sequence_count=stats.sequence_count,
            dram_capacity_bytes=stats.dram_capacity_bytes,
            dram_used_bytes=stats.dram_used_bytes,
            dram_chunk_count=stats.dram_chunk_count,
            pinned_chunk_count=stats.pinned_chunk_count,
            index_failed=stats.index_failed,
            waiting_request_count=stats.waiting_request_count,
            counters=stats.counters,
            devices=[admin_pb2.DeviceStats(**asdict(device)) for device in stats.devices],
            scrub=admin_pb2.ScrubStats(**asdict(stats.scrub)),
            namespaces=[admin_pb2.NamespaceStats(**asdict(one)) for one in stats.namespaces],
            **asdict(services.sessions.usage()),
        )

    @session_call
    async def ListChunks(
        self, request: admin_pb2.ListChunksRequest, session: Session
    ) -> admin_pb2.ListChunksReply:
        """Chunks whose key begins with a prefix."""
        check_admin(session)
        key_prefix = hex_prefix(request.key_prefix)
        limit = fields.bounded(request.limit, "limit", least=1, most=LIST_CHUNKS_MAX)
        services = self.services
        chunks, is_truncated = await services.in_call_thread(
            session, deadline_in(), services.store.inspection.list_chunks, key_prefix, limit
        )
        return admin_pb2.ListChunksReply(
            chunks=[chunk_info(chunk) for chunk in chunks], truncated=is_truncated
        )

    @session_call
    async def Inspect(
        self, request: admin_pb2.InspectRequest, session: Session
    ) -> admin_pb2.InspectReply:
        """One chunk with its slices."""
        check_admin(session)
        key_prefix = hex_prefix(request.key_prefix)
        services = self.services
        detail = await services.in_call_thread(
            session, deadline_in(), services.store.inspection.inspect, key_prefix
        )
        if detail is None:
            refuse(Reason.NOT_STORED, f"no stored chunk has a key that begins with {key_prefix!r}")
        return admin_pb2.InspectReply(
            chunk=chunk_info(detail.status),
            slices=[
                admin_pb2.SliceInfo(bytes=part.byte_count, checksum=part.checksum)
                for part in detail.slices
            ],
            parent_key=detail.parent_key,
            layout=detail.layout.to_proto() if detail.layout else None,
        )


def check_admin(session: Session) -> None:
    """Refuses a session that is not an administrator's."""
    if not session.identity.grant.admin:
        refuse(Reason.NOT_ADMIN, "only the daemon's own user and root may use the admin service")


def hex_prefix(text: str) -> str:
    """The beginning of a hexadecimal key, in lower case."""
    prefix = text.lower()
    if len(prefix) > 2 * KEY_BYTES or not _HEX_DIGITS.issuperset(prefix):
        refuse(
            Reason.FIELD_INVALID,
            f"{text!r} is not the beginning of a key; a key has {2 * KEY_BYTES} hexadecimal digits",
        )
    return prefix


def chunk_info(status: ChunkStatus) -> admin_pb2.ChunkInfo:
    """A chunk as the contract has it."""
    return admin_pb2.ChunkInfo(
        namespace_id=status.chunk.namespace_id.hex(),
        key=status.chunk.key,
        layout_id=status.layout_id,
        token_count=status.token_count,
        device_index=status.device_index,
        offset=status.offset,
        extent_bytes=status.extent_bytes,
        epoch=status.epoch,
        quarantined=status.quarantined,
        in_dram=status.in_dram,
    )
