"""The write path: arena to DRAM frame, frame to device, commit."""

import time
from concurrent.futures import Future, wait

from kvstored.counters import Counters
from kvstored.format.checksum import checksum
from kvstored.format.extent import Extent
from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.pieces import gather
from kvstored.store.striping import device_for
from kvstored.store.writer import SealedChunk
from kvstored.tiers.dram import Claim, DramTier, Frame, FrameState
from kvstored.tiers.nvme_room import NvmeRoom
from kvstored.tiers.requests import NewChunk, PutOutcome, PutRequest, PutTicket
from kvstored_contract.reasons import Reason


class PutPath:
    """Stores complete chunks. Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, room: NvmeRoom, counters: Counters
    ) -> None:
        self._store = store
        self._dram = dram
        self._room = room
        self._counters = counters

    def put(self, request: PutRequest) -> list[PutTicket]:
        """Copies every chunk into DRAM and starts to write it; one ticket per chunk.

        Blocks for the copies and, until the deadline, for room. A chunk is readable
        from DRAM when this returns. Once a chunk finds no room, the rest is rejected
        without waiting again.
        """
        chunks = [ChunkId(request.namespace_id, new.key) for new in request.chunks]
        tickets: list[PutTicket] = []
        for index, record in enumerate(self._store.find(chunks)):
            if record is not None:
                self._room.used((chunks[index],))
                tickets.append(PutTicket(outcome=PutOutcome.EXISTED, durable=_already_durable()))
            elif tickets and tickets[-1].outcome is PutOutcome.REJECTED:
                tickets.append(tickets[-1])
            else:
                tickets.append(self._put_chunk(request, index, chunks[index]))
        for ticket in tickets:
            self._counters.add(f"put_{ticket.outcome.name.lower()}_chunks")
        return tickets

    def _put_chunk(self, request: PutRequest, index: int, chunk: ChunkId) -> PutTicket:
        new = request.chunks[index]
        claim = self._claim(request, chunk, new.token_count)
        if claim is None:
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DRAM_FULL)
        frame = claim.frame
        if not claim.is_new:
            return PutTicket(outcome=PutOutcome.EXISTED, durable=frame.durable)
        extent: Extent | None = None
        try:
            refusal = self._refusal(chunk, request.deadline)
            if refusal is not None:
                self._dram.abandon(frame, Reason.DEADLINE)
                return refusal
            device = device_for(stripe=new.stripe, device_count=len(self._store.device_set.devices))
            extent = self._room.take_extent(self._store, frame.extent.byte_count, device)
            if extent is None:
                self._dram.abandon(frame, Reason.STORE_FULL)
                return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.STORE_FULL)
            sealed = seal(request, new, index, frame)
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

    def _claim(self, request: PutRequest, chunk: ChunkId, token_count: int) -> Claim | None:
        """A frame to fill, or the one of a chunk that is on the devices or on its way there.

        A chunk that only DRAM still has, because its extent was evicted or its device
        failed, is claimed anew: what was acknowledged for it before is true no more.
        """
        while True:
            claim = self._dram.claim(
                chunk,
                layout=request.layout,
                token_count=token_count,
                class_bytes=class_bytes(request.layout),
                deadline=request.deadline,
                is_wanted=request.is_wanted,
            )
            if claim is None or claim.is_new or not self._is_in_dram_only(claim.frame):
                return claim
            self._dram.drop(chunk)

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
        return PutTicket(outcome=PutOutcome.EXISTED, durable=_already_durable())


def seal(request: PutRequest, new: NewChunk, index: int, frame: Frame) -> SealedChunk:
    """Copies one chunk out of the arena and sums its slices.

    The sums are taken from the copy: what the client does to its arena meanwhile
    cannot make the stored bytes and their checksums differ.
    """
    geometry = frame.geometry
    pieces_of_slices = request.placement.pieces(
        chunk=index,
        first_layer=0,
        slice_bytes=geometry.slice_bytes,
        chunk_count=len(request.chunks),
    )
    slices = []
    for layer, pieces in enumerate(pieces_of_slices):
        start, slice_bytes = geometry.slice_offsets[layer], geometry.slice_bytes[layer]
        destination = frame.view[start : start + slice_bytes]
        gather(request.source, pieces, destination)
        slices.append(SliceSum(slice_bytes, checksum(destination) if slice_bytes else 0))
    return SealedChunk(
        chunk=frame.chunk,
        parent_key=new.parent_key,
        layout_id=request.layout.layout_id,
        class_bytes=frame.extent.byte_count,
        token_count=new.token_count,
        geometry=geometry,
        slices=tuple(slices),
        frame=frame.view,
    )


def _already_durable() -> Future[Reason]:
    future: Future[Reason] = Future()
    future.set_result(Reason.UNSPECIFIED)
    return future
