"""From a filled frame to a durable chunk: what puts and appends have in common."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace

from kvstored.deadlines import remaining_s
from kvstored.format.checksum import checksum
from kvstored.format.extent import Extent
from kvstored.format.extent_header import SliceSum
from kvstored.format.identity import ChunkId
from kvstored.store.space.striping import device_for
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.store.write.writer import SealedChunk
from kvstored.tiers.changes.change_feed import ChangeFeed
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Claim, Frame, FrameState
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.requests import NewChunk, PutOutcome, PutTicket
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


class Stager:
    """Makes chunks readable from DRAM and writes them after that. Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, room: NvmeRoom, feed: ChangeFeed
    ) -> None:
        self._store = store
        self._dram = dram
        self._room = room
        self._feed = feed

    def are_stored(self, chunks: Sequence[ChunkId]) -> list[bool]:
        """Which chunks are on the devices; counts that as a use of them. Raises IndexFailure.

        The early answer: no frame is claimed, and nothing evicted, for a chunk that is stored.
        """
        stored = [record is not None for record in self._store.find(chunks)]
        self._room.used(
            [chunk for chunk, is_stored in zip(chunks, stored, strict=True) if is_stored]
        )
        return stored

    def claim(
        self,
        take: Callable[[], Claim | None],
        *,
        deadline: float,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Claim | None:
        """A frame to fill, or the one of a chunk that is on the devices or on its way there.

        ``take`` claims the frame. One that somebody else is filling may still be given up, and
        is claimed then: that is waited for until the deadline, as long as ``is_wanted``. A chunk
        that only DRAM still has, because its extent was evicted or its device failed, is claimed
        again: what was acknowledged for it before is true no more. While somebody has it pinned it
        stays as it is, and is not durable.
        """
        while True:
            claim = take()
            if claim is not None and claim.is_filling:
                if not self._dram.wait_filled(claim.frame, deadline, is_wanted):
                    return claim
                continue
            if claim is None or claim.is_new or not self._is_in_dram_only(claim.frame):
                return claim
            if not self._dram.drop_unless_kept(claim.frame):
                return replace(claim, is_kept=True)

    def stage(
        self,
        frame: Frame,
        new: NewChunk,
        layout: StateLayout,
        *,
        deadline: float,
        fill: Callable[[Frame], tuple[SliceSum, ...]],
    ) -> PutTicket:
        """Publishes a claimed frame after ``fill`` has filled and summed it, and writes it.

        The frame is the tier's afterwards, whatever comes of it. Waits for evictions, for a
        slab to be opened, and for a deletion or a write under the same key; where one of these
        is not over by ``deadline`` the chunk is rejected with DEADLINE.
        """
        extent: Extent | None = None
        try:
            refusal = self._refusal(frame.chunk, deadline)
            if refusal is not None:
                self._dram.abandon(frame, refusal.reason)
                return refusal
            device = device_for(stripe=new.stripe, device_count=len(self._store.device_set.devices))
            taken = self._room.take_extent(
                self._store, frame.extent.byte_count, device, deadline=deadline
            )
            if isinstance(taken, Reason):
                self._dram.abandon(frame, taken)
                return PutTicket(outcome=PutOutcome.REJECTED, reason=taken)
            extent = taken
            sealed = sealed_chunk(frame, new, layout, fill(frame))
        except BaseException:
            # Whatever went wrong, nobody may wait for this frame.
            if extent is not None:
                self._store.extents.free(extent)
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        self._feed.stored(frame.chunk, new.note)
        self._dram.publish(frame, FrameState.DIRTY)
        written = self._store.writes.write(sealed, extent)
        written.add_done_callback(lambda outcome: self._dram.settle(frame, outcome.result()))
        return PutTicket(outcome=PutOutcome.STORED, durable=frame.durable)

    def _is_in_dram_only(self, frame: Frame) -> bool:
        return (
            frame.durable.done()
            and self._store.pending(frame.chunk) is None
            and self._store.find([frame.chunk]) == [None]
        )

    def _refusal(self, chunk: ChunkId, deadline: float) -> PutTicket | None:
        """Why a claimed chunk must not be written: a key has one extent at a time.

        The look-up that decides, with the reason for the client. Waits for a deletion or a
        write under the same key whose frame is gone already, and finds what was committed
        between the early answer and the claim: no room is waited for then.
        """
        while (pending := self._store.pending(chunk)) is not None:
            if not wait([pending], timeout=remaining_s(deadline)).done:
                return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DEADLINE)
        if self._store.find([chunk]) == [None]:
            return None
        return STORED_BEFORE


def found(claim: Claim) -> PutTicket:
    """The answer for a chunk whose key names a frame already.

    One that is still being filled cannot be read, and may never be there.
    """
    if claim.is_filling:
        return STILL_FILLING
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
