"""Verbs of the store service, as flows that any transport can drive."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvstored_client.errors import (
    ArenaFullError,
    LayoutRefusedError,
    LeaseUnknownError,
    RegionStaleError,
    RequestInvalidError,
    StoreError,
)
from kvstored_client.session.limits import REPLY_GRACE_S
from kvstored_client.session.region import Region
from kvstored_client.session.session import Session
from kvstored_client.values import Ack, Changes, NewChunk, Order, PutReport
from kvstored_client.verbs import methods
from kvstored_client.verbs.call import Flow, Verb, ask, building
from kvstored_client.verbs.held_board import HeldBoard
from kvstored_client.verbs.placement import Placement
from kvstored_client.verbs.progress import ReadProgress
from kvstored_client.verbs.replies import (
    changes as changes_of,
)
from kvstored_client.verbs.replies import (
    matched_chunks,
    pinned_keys,
    put_report,
    rejected_report,
)
from kvstored_client.verbs.requests import match_request, pin_request, put_request, read_request
from kvstored_contract.board import board_bytes
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import session_pb2, store_pb2

LeaseT = TypeVar("LeaseT")


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """A lease as the daemon granted it; it ends with the session if not before.

    ``is_pinned`` tells of each key that was asked for whether its chunk is kept. Of more keys
    than one call may name the daemon has granted several.
    """

    session: Session
    lease_ids: tuple[int, ...]
    is_pinned: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Match(Generic[LeaseT]):
    """The longest stored prefix: ``chunk_count`` leading keys are stored.

    ``lease`` keeps these chunks from being evicted, when one was asked for.
    """

    chunk_count: int
    lease: LeaseT | None = None


def registered(session: Session, layout: StateLayout) -> Flow[bytes]:
    """The layout's id, after the session has announced the layout once."""
    layout_id = layout.layout_id
    if layout_id not in session.registered:
        with building():
            request = session_pb2.RegisterLayoutRequest(layout=layout.to_proto())
        reply = yield from ask(session, methods.REGISTER_LAYOUT, request)
        if reply.layout_id != layout_id:
            raise RequestInvalidError(
                "the daemon derives another id for this layout than the client"
            )
        session.registered.add(layout_id)
    return layout_id


def register(layout: StateLayout) -> Verb[bool | None]:
    """Announces a layout: whether the daemon takes it, None where nobody said."""

    def flow(session: Session) -> Flow[bool | None]:
        if layout.layout_id in session.refused:
            return False
        try:
            yield from registered(session, layout)
        except LayoutRefusedError:
            session.refused.add(layout.layout_id)
            return False
        return True

    return Verb(name="register", flow=flow, missed=lambda _: None)


def check_regions(placement: Placement, session: Session) -> None:
    """Raises RegionStaleError unless every region of a placement lies in the session's arena.

    The daemon takes the same numbers as offsets into whatever arena the session has:
    those of an arena that is gone would name other bytes in the next one.
    """
    if not all(region.is_current and region.arena is session.arena for region in placement.regions):
        raise RegionStaleError("a region was released or belongs to a session that has ended")


def allocate(byte_count: int) -> Verb[Region | None]:
    """A region of the arena; no call is needed."""

    def flow(session: Session) -> Flow[Region | None]:
        yield from ()
        with building():
            region = session.arena.allocate(byte_count)
        if region is None:
            raise ArenaFullError(
                f"no free stretch of {byte_count} bytes in the arena; release regions, or ask "
                "for a larger arena_bytes"
            )
        return region

    return Verb(name="allocate", flow=flow, missed=lambda _: None)


def put(
    layout: StateLayout,
    chunks: Sequence[NewChunk],
    source: Placement,
    *,
    ack: Ack,
    timeout_ms: int,
) -> Verb[PutReport]:
    """Stores chunks."""

    def flow(session: Session) -> Flow[PutReport]:
        if not chunks:
            return PutReport(())
        check_regions(source, session)
        layout_id = yield from registered(session, layout)
        with building():
            request = put_request(
                layout_id=layout_id,
                chunks=chunks,
                source=source,
                ack=ack,
                timeout_ms=timeout_ms,
            )
        timeout_s = timeout_ms / 1000 + REPLY_GRACE_S
        reply = yield from ask(session, methods.PUT, request, timeout_s=timeout_s, uses_arena=True)
        return put_report(reply, len(chunks))

    return Verb(
        name="put", flow=flow, missed=lambda error: rejected_report(error.reason, len(chunks))
    )


def match(layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int) -> Verb[Match[LeaseGrant]]:
    """Finds the longest stored prefix."""

    def flow(session: Session) -> Flow[Match[LeaseGrant]]:
        if not keys:
            return Match(0)
        layout_id = yield from registered(session, layout)
        with building():
            request = match_request(layout_id=layout_id, keys=keys, lease_ms=lease_ms)
        reply = yield from ask(session, methods.MATCH, request)
        chunk_count = matched_chunks(reply, len(keys))
        lease_id = reply.lease_id
        is_pinned = tuple(index < chunk_count for index in range(len(keys)))
        grant = LeaseGrant(session, (lease_id,), is_pinned) if lease_id else None
        return Match(chunk_count, grant)

    return Verb(name="match", flow=flow, missed=lambda _: Match(0))


def read(
    layout: StateLayout,
    keys: Sequence[bytes],
    destination: Placement,
    *,
    order: Order,
    first_layer: int,
    layer_count: int | None,
    window_bytes: int,
    timeout_ms: int,
) -> Verb[ReadProgress]:
    """Starts a read."""
    layers = layout.layer_count - first_layer if layer_count is None else layer_count

    def flow(session: Session) -> Flow[ReadProgress]:
        if not keys:
            return ReadProgress(HeldBoard.missing(chunk_count=0, layer_count=layers))
        if not (first_layer >= 0 and 0 < layers <= layout.layer_count - first_layer):
            raise RequestInvalidError(
                f"{layers} layers from layer {first_layer} on are not in a layout of "
                f"{layout.layer_count} layers"
            )
        check_regions(destination, session)
        layout_id = yield from registered(session, layout)
        region = session.arena.allocate_board(
            board_bytes(chunk_count=len(keys), layer_count=layers, has_lengths=layout.is_encoded)
        )
        if region is None:
            raise ArenaFullError("no room in the arena for the board of a read; release regions")
        timeout_s = timeout_ms / 1000 + REPLY_GRACE_S
        board = HeldBoard.start(
            region,
            session.presence,
            chunk_count=len(keys),
            layer_count=layers,
            has_lengths=layout.is_encoded,
        )
        progress = ReadProgress(board, limit=time.monotonic() + timeout_s)
        try:
            with building():
                request = read_request(
                    layout_id=layout_id,
                    keys=keys,
                    order=order,
                    first_layer=first_layer,
                    layer_count=layers,
                    destination=destination,
                    board_offset=region.offset,
                    window_bytes=window_bytes,
                    timeout_ms=timeout_ms,
                )
            yield from ask(session, methods.READ, request, timeout_s=timeout_s, uses_arena=True)
        except BaseException:
            # Either the daemon refused, or the session has ended: the board is ours.
            region.release()
            raise
        return progress

    return Verb(
        name="read",
        flow=flow,
        missed=lambda _: ReadProgress(
            HeldBoard.missing(chunk_count=len(keys), layer_count=max(layers, 0))
        ),
    )


def pin(layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int) -> Verb[LeaseGrant | None]:
    """Leases whichever of the keys are stored."""

    def flow(session: Session) -> Flow[LeaseGrant | None]:
        if not keys:
            return None
        layout_id = yield from registered(session, layout)
        lease_ids: list[int] = []
        is_pinned: tuple[bool, ...] = ()
        try:
            for first in range(0, len(keys), CHUNKS_PER_CALL_MAX):
                part = keys[first : first + CHUNKS_PER_CALL_MAX]
                with building():
                    request = pin_request(layout_id=layout_id, keys=part, lease_ms=lease_ms)
                reply = yield from ask(session, methods.PIN, request)
                is_pinned += pinned_keys(reply, len(part))
                lease_ids += [reply.lease_id] if reply.lease_id else []
        except StoreError:
            # Nobody hears of what was granted.
            with suppress(StoreError):
                yield from _unpinned(session, lease_ids)
            raise
        return LeaseGrant(session, tuple(lease_ids), is_pinned) if lease_ids else None

    return Verb(name="pin", flow=flow, missed=lambda _: None)


def unpin(grant: LeaseGrant) -> Verb[bool]:
    """Ends a lease; False when it had ended already, by time or with its session."""

    def flow(session: Session) -> Flow[bool]:
        if session is not grant.session:
            return False
        return (yield from _unpinned(session, grant.lease_ids))

    return Verb(name="unpin", flow=flow, missed=lambda _: False)


def _unpinned(session: Session, lease_ids: Sequence[int]) -> Flow[bool]:
    """Ends leases; False when one of them had ended already."""
    had_all = True
    for lease_id in lease_ids:
        try:
            yield from ask(session, methods.UNPIN, store_pb2.UnpinRequest(lease_id=lease_id))
        except LeaseUnknownError:
            had_all = False
    return had_all


def delete(keys: Sequence[bytes]) -> Verb[int]:
    """Deletes chunks durably."""

    def flow(session: Session) -> Flow[int]:
        if not keys:
            return 0
        with building():
            request = store_pb2.DeleteRequest(keys=keys)
        reply = yield from ask(session, methods.DELETE, request)
        return reply.deleted_chunks

    return Verb(name="delete", flow=flow, missed=lambda _: 0)


def changes(*, epoch: int, after_sequence: int, keys: Sequence[bytes]) -> Verb[Changes | None]:
    """Asks what came and went."""

    def flow(session: Session) -> Flow[Changes | None]:
        with building():
            request = store_pb2.ChangesRequest(
                epoch=epoch, after_sequence=after_sequence, keys=keys
            )
        reply = yield from ask(session, methods.CHANGES, request)
        return changes_of(reply, len(keys))

    return Verb(name="changes", flow=flow, missed=lambda _: None)
