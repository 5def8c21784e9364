"""The write path of complete chunks: arena to DRAM frame, frame to device, commit."""

from kvstored.counters import Counters
from kvstored.format.geometry import class_bytes, class_bytes_for
from kvstored.format.identity import ChunkId
from kvstored.store.pieces import gather
from kvstored.store.writer import SealedChunk
from kvstored.tiers.dram import DramTier, Frame
from kvstored.tiers.requests import PutOutcome, PutRequest, PutTicket
from kvstored.tiers.stager import Stager, already_durable, seal_frame
from kvstored_contract.reasons import Reason


class PutPath:
    """Stores complete chunks. Thread-safe."""

    def __init__(self, *, dram: DramTier, stager: Stager, counters: Counters) -> None:
        self._dram = dram
        self._stager = stager
        self._counters = counters

    def put(self, request: PutRequest) -> list[PutTicket]:
        """Copies every chunk into DRAM and starts to write it; one ticket per chunk.

        Blocks for the copies and, until the deadline, for room. A chunk is readable
        from DRAM when this returns. Once a chunk finds no room, the rest is rejected
        without waiting again.
        """
        chunks = [ChunkId(request.namespace_id, new.key) for new in request.chunks]
        tickets: list[PutTicket] = []
        for index, is_stored in enumerate(self._stager.are_stored(chunks)):
            if is_stored:
                tickets.append(PutTicket(outcome=PutOutcome.EXISTED, durable=already_durable()))
            elif tickets and tickets[-1].outcome is PutOutcome.REJECTED:
                tickets.append(tickets[-1])
            else:
                tickets.append(self._put_chunk(request, index, chunks[index]))
        for ticket in tickets:
            self._counters.add(f"put_{ticket.outcome.name.lower()}_chunks")
        return tickets

    def _put_chunk(self, request: PutRequest, index: int, chunk: ChunkId) -> PutTicket:
        layout, new = request.layout, request.chunks[index]
        geometry = new.geometry(layout)
        claim = self._stager.claim(
            chunk,
            lambda: self._dram.claim(
                chunk,
                layout_id=layout.layout_id,
                geometry=geometry,
                class_bytes=(
                    class_bytes_for(layout, geometry) if layout.is_encoded else class_bytes(layout)
                ),
                deadline=request.deadline,
                is_wanted=request.is_wanted,
            ),
        )
        if claim is None:
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DRAM_FULL)
        frame = claim.frame
        if not claim.is_new:
            return PutTicket(outcome=PutOutcome.EXISTED, durable=frame.durable)
        return self._stager.stage(
            frame,
            new,
            deadline=request.deadline,
            seal=lambda: seal_from_arena(request, index, frame),
        )


def seal_from_arena(request: PutRequest, index: int, frame: Frame) -> SealedChunk:
    """Copies one chunk out of the arena and sums its slices."""
    pieces_of_slices = request.placement.pieces(
        chunk=index,
        first_layer=0,
        slice_bytes=frame.geometry.slice_bytes,
        chunk_count=len(request.chunks),
    )
    return seal_frame(
        frame,
        request.chunks[index],
        request.layout,
        lambda layer, part: gather(request.source, pieces_of_slices[layer], part),
    )
