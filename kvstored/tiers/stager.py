"""From a filled frame to a durable chunk: what puts and appends have in common."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from kvstored.format.checksum import checksum
from kvstored.format.extent import Extent
from kvstored.format.extent_header import SliceSum
from kvstored.format.identity import ChunkId
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.striping import device_for
from kvstored.store.writer import SealedChunk
from kvstored.tiers.dram import Claim, DramTier, Frame, FrameState
from kvstored.tiers.nvme_room import NvmeRoom
from kvstored.tiers.requests import NewChunk, PutOutcome, PutTicket
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


class Stager:
    """Makes chunks readable from DRAM and writes them behind it. Thread-safe."""

    def __init__(self, *, store: ChunkStore, dram: DramTier, room: NvmeRoom) -> None:
        self._store = store
        self._dram = dram
        self._room = room

    def are_stored(self, chunks: Sequence[ChunkId]) -> list[bool]:
        """Which chunks are on the devices; counts that as a use of them. Raises IndexFailure."""
        stored = [record is not None for record in self._store.find(chunks)]
        self._room.used(
            [chunk for chunk, is_stored in zip(chunks, stored, strict=True) if is_stored]
        )
        return stored

    def claim(self, chunk: ChunkId, take: Callable[[], Claim | None]) -> Claim | None:
        """A frame to fill, or the one of a chunk that is on the devices or on its way there.

        ``take`` claims the frame. A chunk that only DRAM still has, because its extent was
        evicted or its device failed, is claimed anew: what was acknowledged for it before
        is true no more.
        """
        while True:
            claim = take()
            if claim is None or claim.is_new or not self._is_in_dram_only(claim.frame):
                return claim
            self._dram.drop(chunk)

    def stage(
        self, frame: Frame, new: NewChunk, *, deadline: float, seal: Callable[[], SealedChunk]
    ) -> PutTicket:
        """Publishes a claimed frame after ``seal`` has filled and summed it, and writes it.

        The frame is the tier's afterwards, whatever comes of it. Waits for evictions, and
        until ``deadline`` for a deletion or a write under the same key.
        """
        extent: Extent | None = None
        try:
            refusal = self._refusal(frame.chunk, deadline)
            if refusal is not None:
                self._dram.abandon(frame, refusal.reason)
                return refusal
            device = device_for(stripe=new.stripe, device_count=len(self._store.device_set.devices))
            extent = self._room.take_extent(self._store, frame.extent.byte_count, device)
            if extent is None:
                self._dram.abandon(frame, Reason.STORE_FULL)
                return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.STORE_FULL)
            sealed = seal()
        except BaseException:
            # Whatever went wrong, nobody may wait for this frame.
            if extent is not None:
                self._store.free_unwritten(extent)
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        self._dram.publish(frame, FrameState.DIRTY)
        written = self._store.write(sealed, extent)
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

        Waits for a deletion or a write under the same key whose frame is gone already,
        and finds what was committed between the look-up and the claim.
        """
        while (pending := self._store.pending(chunk)) is not None:
            if not wait([pending], timeout=deadline - time.monotonic()).done:
                return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DEADLINE)
        if self._store.find([chunk]) == [None]:
            return None
        return PutTicket(outcome=PutOutcome.EXISTED, durable=already_durable())


def seal_frame(
    frame: Frame,
    new: NewChunk,
    layout: StateLayout,
    fill: Callable[[int, memoryview], None] = lambda _layer, _slice: None,
) -> SealedChunk:
    """The chunk in a frame with the sums of its slices; ``fill`` is given each before.

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
    return SealedChunk(
        chunk=frame.chunk,
        parent_key=new.parent_key,
        layout_id=layout.layout_id,
        class_bytes=frame.extent.byte_count,
        token_count=new.token_count,
        geometry=geometry,
        slices=tuple(slices),
        frame=frame.view,
        is_encoded=layout.is_encoded,
    )


def already_durable() -> Future[Reason]:
    """The outcome of a chunk that was stored before."""
    future: Future[Reason] = Future()
    future.set_result(Reason.UNSPECIFIED)
    return future
