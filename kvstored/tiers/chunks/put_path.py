"""The write path of complete chunks: arena to DRAM frame, frame to device, commit."""

import time
from collections import Counter
from functools import partial

from kvstored.counters import Counters
from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import class_bytes, class_bytes_for
from kvstored.format.identity import ChunkId
from kvstored.store.read.fragments import gather
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Frame
from kvstored.tiers.chunks.requests import PutOutcome, PutRequest, PutTicket
from kvstored.tiers.chunks.stager import STILL_FILLING, STORED_BEFORE, Stager, found, slice_sums
from kvstored.turnstile import TURNSTILE
from kvstored_contract.reasons import Reason

LOOKED_UP_AT_ONCE = 32
"""Chunks of a put that are looked up together: some hundred microseconds."""


class PutPath:
    """Stores complete chunks. Thread-safe."""

    def __init__(self, *, dram: DramTier, stager: Stager, counters: Counters) -> None:
        self._dram = dram
        self._stager = stager
        self._counters = counters

    def put(self, request: PutRequest) -> list[PutTicket]:
        """Copies every chunk into DRAM and starts to write it; one ticket per chunk.

        Blocks for the copies and, until the deadline, for room. A chunk is readable
        from DRAM when this returns. Once a chunk finds no room, in DRAM or on the devices,
        the rest is rejected for the same reason, without waiting again.
        """
        tickets: list[PutTicket] = []
        refused: PutTicket | None = None
        for part in TURNSTILE.parts(request.chunks, LOOKED_UP_AT_ONCE):
            chunks = [ChunkId(request.namespace_id, new.key) for new in part]
            for chunk, is_stored in zip(chunks, self._stager.are_stored(chunks), strict=True):
                if is_stored:
                    tickets.append(STORED_BEFORE)
                elif refused is not None:
                    tickets.append(refused)
                else:
                    # Its client does not wait much longer than the deadline.
                    if time.monotonic() < request.deadline:
                        TURNSTILE.give_way()
                    ticket = self._put_chunk(request, len(tickets), chunk)
                    is_refused = ticket.outcome is PutOutcome.REJECTED
                    refused = ticket if is_refused and ticket is not STILL_FILLING else None
                    tickets.append(ticket)
        for outcome, count in Counter(ticket.outcome for ticket in tickets).items():
            self._counters.add(f"put_{outcome.name.lower()}_chunks", count)
        return tickets

    def _put_chunk(self, request: PutRequest, index: int, chunk: ChunkId) -> PutTicket:
        layout, new = request.layout, request.chunks[index]
        geometry = new.geometry(layout)
        claim = self._stager.claim(
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
            deadline=request.deadline,
            is_wanted=request.is_wanted,
        )
        if claim is None:
            return PutTicket(outcome=PutOutcome.REJECTED, reason=Reason.DRAM_FULL)
        if not claim.is_new:
            return found(claim)
        return self._stager.stage(
            claim.frame,
            new,
            layout,
            deadline=request.deadline,
            fill=partial(copied_from_arena, request, index),
        )


def copied_from_arena(request: PutRequest, index: int, frame: Frame) -> tuple[SliceSum, ...]:
    """Copies one chunk out of the arena and sums its slices."""
    fragments_of_slices = request.placement.fragments(
        chunk=index,
        first_layer=0,
        slice_bytes=frame.geometry.slice_bytes,
        chunk_count=len(request.chunks),
    )
    return slice_sums(
        frame, lambda layer, part: gather(request.source, fragments_of_slices[layer], part)
    )
