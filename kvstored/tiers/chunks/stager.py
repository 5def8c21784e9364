"""From a filled frame to a durable chunk: what puts and appends have in common."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace

from kvstored.deadlines import remaining_s
from kvstored.format.checksum import checksum
from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import ChunkGeometry, Extent, class_bytes, class_bytes_for
from kvstored.format.identity import ChunkId
from kvstored.store.space.allocator import device_for
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.store.write.writer import SealedChunk
from kvstored.tiers.changes.change_feed import ChangeFeed
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Claim, Frame, FrameState, OpenFrame
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.requests import NewChunk, PutOutcome, PutTicket
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

Fill = Callable[[Frame], tuple[SliceSum, ...]]
"""Fills a frame, unless that is done, and sums its slices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedChunk:
    """A complete chunk to be stored; deadlines are on the monotonic clock.

    ``frame_deadline`` bounds the wait for room in DRAM, which ends as well soon after
    ``is_wanted`` says no; ``deadline`` bounds every other wait.
    """

    chunk: ChunkId
    new: NewChunk
    layout: StateLayout
    deadline: float
    frame_deadline: float
    is_wanted: Callable[[], bool] = lambda: True

    @property
    def geometry(self) -> ChunkGeometry:
        """Where its slices lie in a frame and in an extent."""
        return self.new.geometry(self.layout)

    @property
    def class_bytes(self) -> int:
        """Length of its frame and of its extent."""
        if self.layout.is_encoded:
            return class_bytes_for(self.layout, self.geometry)
        return class_bytes(self.layout)


class Stager:
    """Makes chunks readable from DRAM and writes them after that. Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, room: NvmeRoom, feed: ChangeFeed
    ) -> None:
        self._store = store
        self._dram = dram
        self._room = room
        self._feed = feed
        self._staged_count = 0
        self._lock = threading.Lock()

    @property
    def staged_count(self) -> int:
        """Chunks that are readable from DRAM and on their way to the devices."""
        return self._staged_count

    def are_stored(self, chunks: Sequence[ChunkId]) -> list[bool]:
        """Which chunks are on the devices; counts that as a use of them. Raises IndexFailure.

        The early answer: no frame is claimed, and nothing evicted, for a chunk that is stored.
        """
        stored = [record is not None for record in self._store.find(chunks)]
        self._room.used(
            [chunk for chunk, is_stored in zip(chunks, stored, strict=True) if is_stored]
        )
        return stored

    def put(self, wanted: WantedChunk, fill: Fill) -> PutTicket:
        """Stages a chunk in a frame of the tier that ``fill`` fills.

        Waits for a frame, for another put of the key, and as ``_stage`` does.
        """
        return self._answer(self._claim(wanted, None), wanted, fill)

    def adopt(self, wanted: WantedChunk, opened: OpenFrame) -> PutTicket:
        """Stages the complete chunk in an open frame.

        The frame is the tier's afterwards, or given back, whatever comes of it. Waits as ``put``
        does, but for no frame.
        """
        claim = None
        try:
            if self.are_stored([wanted.chunk]) == [True]:
                return STORED_BEFORE
            claim = self._claim(wanted, opened)
        finally:
            if claim is None or not claim.is_new:
                self._dram.open_frames.close(opened)
        return self._answer(claim, wanted, slice_sums)

    def _claim(self, wanted: WantedChunk, opened: OpenFrame | None) -> Claim | None:
        """A frame to fill, or the one of a chunk that is on the devices or on its way there.

        One that somebody else is filling may still be given up, and is claimed then: that is
        waited for until the deadline, as long as ``is_wanted``. A chunk that only DRAM still has,
        because its extent was evicted or its device failed, is claimed again: what was
        acknowledged for it before is true no more. While somebody has it pinned it stays as it
        is, and is not durable; where the devices have no room for it, it stays and is refused.
        One that is leaving the devices is waited for, or refused at the deadline.
        """
        has_waited = False
        room: Extent | None = None
        try:
            while True:
                claim = self._taken(wanted, opened)
                if claim is None:
                    return None
                if claim.is_new:
                    if has_waited or room is not None:
                        claim, room = replace(claim, has_waited=has_waited, room=room), None
                    return claim
                is_over = self._wait_for_others(claim, wanted)
                if is_over is False:
                    return replace(claim, refusal=Reason.DEADLINE)
                if is_over:
                    has_waited = True
                    continue
                if not self._is_in_dram_only(claim.frame):
                    return claim
                is_kept = self._store.pins.is_pinned(wanted.chunk)
                if room is None and not is_kept:
                    taken = self._take_extent(wanted, _frame_bytes(wanted, opened))
                    if isinstance(taken, Reason):
                        return replace(claim, refusal=taken)
                    room = taken
                if is_kept or not self._dram.drop_unless_kept(claim.frame):
                    return replace(claim, is_kept=True)
        finally:
            if room is not None:
                self._free(wanted, room)

    def _taken(self, wanted: WantedChunk, opened: OpenFrame | None) -> Claim | None:
        if opened is not None:
            return self._dram.open_frames.adopt(opened, wanted.chunk)
        return self._dram.claim(
            wanted.chunk,
            layout_id=wanted.layout.layout_id,
            geometry=wanted.geometry,
            class_bytes=wanted.class_bytes,
            deadline=wanted.frame_deadline,
            is_wanted=wanted.is_wanted,
        )

    def _answer(self, claim: Claim | None, wanted: WantedChunk, fill: Fill) -> PutTicket:
        if claim is None:
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DRAM_FULL)
        return self._stage(claim, wanted, fill) if claim.is_new else found(claim)

    def _stage(self, claim: Claim, wanted: WantedChunk, fill: Fill) -> PutTicket:
        """Publishes a claimed frame after ``fill`` has filled and summed it, and writes it.

        The frame is the tier's afterwards, whatever comes of it. Waits for evictions, for a
        slab to be opened, and for a deletion or a write under the same key; where one of these
        is not over by the deadline the chunk is rejected with DEADLINE.
        """
        frame, extent = claim.frame, claim.room
        try:
            refusal = self._refusal(claim, wanted.deadline)
            if refusal is not None:
                if extent is not None:
                    self._free(wanted, extent)
                self._dram.abandon(frame, refusal.reason)
                return refusal
            if extent is None:
                taken = self._take_extent(wanted, frame.extent.byte_count)
                if isinstance(taken, Reason):
                    self._dram.abandon(frame, taken)
                    return PutTicket(outcome=PutOutcome.REJECTED, reason=taken)
                extent = taken
            sealed = sealed_chunk(frame, wanted.new, wanted.layout, fill(frame))
        except BaseException:
            # Whatever went wrong, nobody may wait for this frame.
            if extent is not None:
                self._free(wanted, extent)
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        self._feed.stored(frame.chunk, wanted.new.note)
        self._count(1)
        self._dram.publish(frame, FrameState.DIRTY)
        written = self._store.writes.write(sealed, extent)
        written.add_done_callback(lambda _: self._give_back(frame))
        written.add_done_callback(lambda outcome: self._dram.settle(frame, outcome.result()))
        written.add_done_callback(lambda _: self._count(-1))
        return PutTicket(outcome=PutOutcome.STORED, durable=frame.durable)

    def _count(self, change: int) -> None:
        with self._lock:
            self._staged_count += change

    def _take_extent(self, wanted: WantedChunk, byte_count: int) -> Extent | Reason:
        device_count = len(self._store.device_set.devices)
        return self._room.take_extent(
            self._store,
            byte_count,
            device_for(stripe=wanted.new.stripe, device_count=device_count),
            namespace_id=wanted.chunk.namespace_id,
            deadline=wanted.deadline,
        )

    def _free(self, wanted: WantedChunk, extent: Extent) -> None:
        """Gives an extent back in which nothing was written."""
        self._store.extents.free(extent)
        self._room.give_back(wanted.chunk.namespace_id, extent.byte_count)

    def _give_back(self, frame: Frame) -> None:
        self._room.give_back(frame.chunk.namespace_id, frame.extent.byte_count)

    def _wait_for_others(self, claim: Claim, wanted: WantedChunk) -> bool | None:
        """Waits for those who fill a frame, or for what takes its chunk off the devices.

        None where nothing is waited for, else whether it was over by the deadline.
        """
        if claim.is_filling:
            return self._dram.wait_filled(claim.frame, wanted.deadline, wanted.is_wanted)
        leaving = self._store.pending(wanted.chunk) if claim.frame.durable.done() else None
        if leaving is None:
            return None
        return bool(wait([leaving], timeout=remaining_s(wanted.deadline)).done)

    def _is_in_dram_only(self, frame: Frame) -> bool:
        return (
            frame.durable.done()
            and self._store.pending(frame.chunk) is None
            and self._store.find([frame.chunk]) == [None]
        )

    def _refusal(self, claim: Claim, deadline: float) -> PutTicket | None:
        """Why a claimed chunk must not be written: a key has one extent at a time.

        Waits for a deletion or a write under the same key whose frame is gone already. Only a
        put that has waited for another one looks the chunk up again: it may be durable now, and
        then no room is waited for. A new chunk is looked up twice otherwise: by the early answer,
        which saves a frame and evictions and decides nothing, and by ``ChunkWrites.write``, which
        decides under its lock and comes too late to save them.
        """
        chunk, has_waited = claim.frame.chunk, claim.has_waited
        while (pending := self._store.pending(chunk)) is not None:
            if not wait([pending], timeout=remaining_s(deadline)).done:
                return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DEADLINE)
            has_waited = True
        if not has_waited or self._store.find([chunk]) == [None]:
            return None
        return STORED_BEFORE


def _frame_bytes(wanted: WantedChunk, opened: OpenFrame | None) -> int:
    return wanted.class_bytes if opened is None else opened.extent.byte_count


def found(claim: Claim) -> PutTicket:
    """The answer for a chunk whose key names a frame already.

    One that is still being filled cannot be read, and may never be there.
    """
    if claim.is_filling:
        return STILL_FILLING
    if claim.refusal is not None:
        return PutTicket(outcome=PutOutcome.REJECTED, reason=claim.refusal)
    return PutTicket(outcome=PutOutcome.EXISTED, durable=claim.durable)


def slice_sums(
    frame: Frame, fill: Callable[[int, memoryview], None] = lambda _layer, _slice: None
) -> tuple[SliceSum, ...]:
    """The sums of the slices in a frame; ``fill`` is given each before, by its layer.

    The sums are taken from the frame: what the client does to its arena meanwhile
    cannot make the stored bytes and their checksums differ.
    """
    geometry = frame.geometry
    slices = []
    for layer, size in enumerate(geometry.slice_bytes):
        start = geometry.slice_offsets[layer]
        part = frame.view[start : start + size]
        fill(layer, part)
        slices.append(SliceSum(size, checksum(part) if size else 0))
    return tuple(slices)


def sealed_chunk(
    frame: Frame, new: NewChunk, layout: StateLayout, slices: tuple[SliceSum, ...]
) -> SealedChunk:
    """The chunk in a filled frame, ready to be written."""
    return SealedChunk(
        chunk=frame.chunk,
        parent_key=new.parent_key,
        layout_id=layout.layout_id,
        class_bytes=frame.extent.byte_count,
        token_count=new.token_count,
        geometry=frame.geometry,
        slices=slices,
        frame=frame.view,
        is_encoded=layout.is_encoded,
    )


def already_durable() -> Future[Reason]:
    """The outcome of a chunk that was stored before."""
    future: Future[Reason] = Future()
    future.set_result(Reason.UNSPECIFIED)
    return future


STILL_FILLING = PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DEADLINE)
"""The answer for a chunk that another put has begun and not finished by the deadline."""

STORED_BEFORE = PutTicket(outcome=PutOutcome.EXISTED, durable=already_durable())
"""The answer for every chunk that was on the devices: thousands in a call share it."""
