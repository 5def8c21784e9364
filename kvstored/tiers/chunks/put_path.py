"""The write path of complete chunks: arena to DRAM frame, frame to device, commit."""

import time
from collections import Counter
from functools import partial

from kvstored.counters import Counters
from kvstored.format.extent_header import SliceSum
from kvstored.format.identity import ChunkId
from kvstored.store.read.fragments import gather
from kvstored.tiers.chunks.frame import Frame
from kvstored.tiers.chunks.requests import PutOutcome, PutRequest, PutTicket
from kvstored.tiers.chunks.stager import (
    STILL_FILLING,
    STORED_BEFORE,
    Stager,
    WantedChunk,
    slice_sums,
)
from kvstored.turnstile import TURNSTILE

LOOKED_UP_AT_ONCE = 32
"""Chunks of a put that are looked up together: some hundred microseconds."""


class PutPath:
    """Stores complete chunks. Thread-safe."""

    def __init__(self, *, stager: Stager, counters: Counters) -> None:
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
        wanted = WantedChunk(
            chunk=chunk,
            new=request.chunks[index],
            layout=request.layout,
            deadline=request.deadline,
            frame_deadline=request.deadline,
            is_wanted=request.is_wanted,
        )
        return self._stager.put(wanted, partial(copied_from_arena, request, index))


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
