"""Slices that are used where they land."""

from math import prod

from torch import Tensor

from engine_adapters.reading.piece import tokens_of
from engine_adapters.reading.section_reads import SectionReads
from engine_adapters.reading.slice_format import SliceFormat
from kvstored_client import SliceState


class ArenaSlices:
    """The bytes that lie in the region of a span, as the board shows them."""

    def __init__(self, reads: SectionReads, slice_format: SliceFormat) -> None:
        self._reads = reads
        self._format = slice_format

    def state(self, chunk: int, layer: int | None = None) -> SliceState:
        """What the boards say."""
        reads = self._reads
        if layer is None:
            return self._chunk_state(chunk)
        if (found := reads.read_of(layer)) is not None:
            read, local = found
            return read.state(chunk, local)
        return SliceState.MISSING if reads.is_given_up else SliceState.PENDING

    def arrived_chunks(self, layer: int) -> int:
        """What the board says."""
        if (found := self._reads.read_of(layer)) is None:
            return 0
        read, local = found
        return read.resident_chunks(local)

    def _chunk_state(self, chunk: int) -> SliceState:
        reads = self._reads
        is_coming = not reads.are_all_started
        for read in tuple(reads.started):
            if read.is_resident(chunk):
                continue
            # It may have come between the two looks.
            if read.is_chunk_settled(chunk) and not read.is_resident(chunk):
                return SliceState.MISSING
            is_coming = True
        if not is_coming:
            return SliceState.RESIDENT
        return SliceState.MISSING if reads.is_given_up else SliceState.PENDING

    def wait(self, chunk: int, layer: int | None = None, *, timeout_s: float) -> None:
        """Waits for the board; for a chunk, in the read that was started last."""
        reads = self._reads
        if layer is None:
            if reads.started:
                reads.started[-1].wait_for(chunk, timeout_s=timeout_s)
            return
        if (found := reads.read_of(layer)) is not None:
            read, local = found
            read.wait_for(chunk, local, timeout_s=timeout_s)

    def view(self, layer: int, chunks: range) -> Tensor:
        """Aliases the arena."""
        reads = self._reads
        section = reads.sections[reads.number_of(layer)]
        itemsize = self._format.dtype.itemsize
        padded = reads.region.tensor(
            self._format.dtype,
            (len(chunks), section.slice_stride // itemsize),
            reads.offset_of(layer, chunks.start),
        )
        shape = self._format.slice_shape(layer, tokens_of(reads.pieces, chunks))
        return padded[:, : prod(shape)].view(len(chunks), *shape)

    def close(self) -> None:
        """Nothing is held."""
