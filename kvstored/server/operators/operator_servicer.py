"""The operators' service: warm, pin, quotas, drain."""
# ruff: noqa: N802 - the contract names the methods

import asyncio
import logging
import time
from concurrent.futures import Future
from dataclasses import replace

from kvstored.format.identity import ChunkId, namespace_id
from kvstored.server import fields
from kvstored.server.admin_servicer import check_admin, hex_prefix
from kvstored.server.calls import Services, session_call
from kvstored.server.errors import refuse
from kvstored.server.held.leases import Lease
from kvstored.server.pinned import Pinned, pinned_chunks
from kvstored.server.session import Session
from kvstored.server.waits import deadline_in
from kvstored.tiers.policy.shares import Quota
from kvstored.tiers.upkeep.tier_quotas import QuotaError
from kvstored.tiers.upkeep.warmer import WARMED_AT_ONCE, Warmth
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, DEADLINE_MS_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc

LOGGER = logging.getLogger(__name__)
PIN_MS_MAX = 30 * 24 * 3600 * 1000
LABEL_BYTES_MAX = 300
NAMESPACE_BYTES_MAX = 400
DRAIN_LOOK_S = 0.05
"""From one look at what is under way to the next."""


class OperatorServicer(admin_pb2_grpc.OperatorServiceServicer):
    """Implements ``OperatorService``, for administrators only."""

    def __init__(self, services: Services) -> None:
        self.services = services

    @session_call
    async def FindChunks(
        self, request: admin_pb2.FindChunksRequest, session: Session
    ) -> admin_pb2.FindChunksReply:
        """Keys of a sequence, or of all chunks whose key begins so."""
        check_admin(session)
        if bool(request.sequence) == bool(request.key_prefix):
            refuse(Reason.FIELD_INVALID, "name either a sequence or the beginning of a key")
        owner = owner_of(request.namespace, session)
        search = self.services.store.upkeep.search
        if request.sequence:
            name = fields.sequence_name(request.sequence, "sequence")
            keys = await self.services.in_call_thread(
                session, deadline_in(), search.of_sequence, owner, name
            )
        else:
            keys = await self.services.in_call_thread(
                session,
                deadline_in(DEADLINE_MS_MAX),
                search.of_prefix,
                owner,
                hex_prefix(request.key_prefix),
                CHUNKS_PER_CALL_MAX + 1,
            )
        return admin_pb2.FindChunksReply(
            keys=keys[:CHUNKS_PER_CALL_MAX], truncated=len(keys) > CHUNKS_PER_CALL_MAX
        )

    @session_call
    async def WarmChunks(
        self, request: admin_pb2.WarmChunksRequest, session: Session
    ) -> admin_pb2.WarmChunksReply:
        """Brings chunks into DRAM until the deadline, some at a time."""
        check_admin(session)
        owner = owner_of(request.namespace, session)
        chunks = [ChunkId(owner, key) for key in fields.checked_keys(request.keys)]
        deadline = deadline_in(
            fields.bounded(request.deadline_ms, "deadline_ms", least=1, most=DEADLINE_MS_MAX)
        )
        kept = frozenset(chunks)
        warmth, place = Warmth(), 0
        while place < len(chunks) and time.monotonic() < deadline:
            part = chunks[place : place + WARMED_AT_ONCE]
            # A part that has begun is waited for: devices end every transfer by themselves.
            warmth += await self.services.in_call_thread(
                session,
                deadline_in(DEADLINE_MS_MAX),
                self.services.store.upkeep.warmer.warm,
                part,
                kept,
            )
            place += len(part)
        return admin_pb2.WarmChunksReply(
            loaded_chunks=warmth.loaded,
            resident_chunks=warmth.resident,
            left_chunks=warmth.left + len(chunks) - place,
        )

    @session_call
    async def PinChunks(
        self, request: admin_pb2.PinChunksRequest, session: Session
    ) -> admin_pb2.PinChunksReply:
        """Keeps chunks for some time, also when nobody is connected."""
        check_admin(session)
        pin_ms = fields.bounded(request.pin_ms, "pin_ms", least=1, most=PIN_MS_MAX)
        if len(request.label.encode()) > LABEL_BYTES_MAX:
            refuse(Reason.FIELD_INVALID, f"label is longer than {LABEL_BYTES_MAX} bytes")
        owner = owner_of(request.namespace, session)
        keys, pins = fields.checked_keys(request.keys), self.services.pins
        if not pins.has_room(len(keys)):
            refuse(Reason.LIMIT_EXCEEDED, "too much is pinned already; unpin something first")
        store, taken = self.services.store, Future[Pinned]()

        def pin() -> Pinned:
            pinned = pinned_chunks(store, owner, keys)
            taken.set_result(pinned)
            return pinned

        try:
            pinned = await self.services.in_call_thread(session, deadline_in(), pin)
        except BaseException:
            # Nobody hears of them any more.
            taken.add_done_callback(lambda done: store.unpin(done.result().chunks))
            raise
        if not pinned.chunks:
            return admin_pb2.PinChunksReply()
        lease = Lease(chunks=pinned.chunks, expires_at=time.monotonic() + pin_ms / 1000)
        namespace = request.namespace or session.identity.grant.namespace
        pin_id = pins.add(lease, namespace=namespace, label=request.label)
        return admin_pb2.PinChunksReply(pin_id=pin_id, pinned_chunks=len(pinned.chunks))

    @session_call
    async def UnpinChunks(
        self, request: admin_pb2.UnpinChunksRequest, session: Session
    ) -> admin_pb2.UnpinChunksReply:
        """Ends one pin or all."""
        check_admin(session)
        pins = self.services.pins
        leases = pins.end(request.pin_id) if request.pin_id else pins.clear()
        if request.pin_id and not leases:
            refuse(Reason.LEASE_UNKNOWN, f"pin {request.pin_id} is unknown or has ended")
        await self.services.sessions.give_back(leases)
        return admin_pb2.UnpinChunksReply(
            pins=len(leases), chunks=sum(len(lease.chunks) for lease in leases)
        )

    @session_call
    async def ListPins(
        self, request: admin_pb2.ListPinsRequest, session: Session
    ) -> admin_pb2.ListPinsReply:
        """What is pinned, and for how long."""
        _ = request
        check_admin(session)
        now = time.monotonic()
        return admin_pb2.ListPinsReply(
            pins=[
                admin_pb2.PinInfo(
                    pin_id=pin.pin_id,
                    namespace=pin.namespace,
                    label=pin.label,
                    chunks=len(pin.lease.chunks),
                    ends_in_ms=max(0, int((pin.lease.expires_at - now) * 1000)),
                )
                for pin in self.services.pins.all()
            ]
        )

    @session_call
    async def SetQuota(
        self, request: admin_pb2.SetQuotaRequest, session: Session
    ) -> admin_pb2.SetQuotaReply:
        """Changes the quota of a namespace that has one."""
        check_admin(session)
        quotas = self.services.store.upkeep.quotas
        try:
            before = quotas.of(request.namespace)
            quotas.change(
                replace(
                    before,
                    dram=changed(before.dram, request, "dram"),
                    devices=changed(before.devices, request, "device"),
                )
            )
        except ValueError as error:
            known = isinstance(error, QuotaError)
            refuse(
                Reason.FIELD_INVALID,
                str(error) if known else f"{error}; raise the limit or lower the share",
            )
        LOGGER.info("an operator changed the quota of the namespace %r", request.namespace)
        return admin_pb2.SetQuotaReply()

    @session_call
    async def Drain(
        self, request: admin_pb2.DrainRequest, session: Session
    ) -> admin_pb2.DrainReply:
        """Takes nothing new, and waits until everything is durable; or takes work again."""
        check_admin(session)
        services = self.services
        deadline = deadline_in(
            fields.bounded(request.deadline_ms, "deadline_ms", least=1, most=DEADLINE_MS_MAX)
        )
        intake, staged_count = services.intake, services.store.upkeep.staged_count
        if intake.is_open != request.resume:
            LOGGER.info("an operator %s", "ends the drain" if request.resume else "drains")
        intake.is_open = request.resume
        # Polled: writes end on threads that know no event loop.
        while (  # noqa: ASYNC110
            not intake.is_open
            and (intake.write_count or staged_count())
            and time.monotonic() < deadline
        ):
            await asyncio.sleep(DRAIN_LOOK_S)
        return admin_pb2.DrainReply(
            draining=not intake.is_open,
            write_calls=intake.write_count,
            staged_chunks=staged_count(),
            session_count=services.sessions.session_count,
        )


def owner_of(namespace: str, session: Session) -> bytes:
    """The id of the namespace that is meant."""
    if len(namespace.encode()) > NAMESPACE_BYTES_MAX:
        refuse(Reason.FIELD_INVALID, f"namespace is longer than {NAMESPACE_BYTES_MAX} bytes")
    return namespace_id(namespace) if namespace else session.namespace_id


def changed(before: Quota, request: admin_pb2.SetQuotaRequest, tier: str) -> Quota:
    """A quota with what the request sets; raises ValueError for one that cannot be."""

    def value(name: str, kept: int | None) -> int | None:
        return getattr(request, name) if request.HasField(name) else kept  # type: ignore[arg-type]  # a field of the message

    return Quota(
        guaranteed_bytes=value(f"{tier}_guaranteed_bytes", before.guaranteed_bytes) or 0,
        limit_bytes=value(f"{tier}_limit_bytes", before.limit_bytes) or None,
    )
