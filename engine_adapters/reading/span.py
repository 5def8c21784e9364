"""Chunks on their way from the store into the arena, and when their region is free again."""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Protocol

from torch import Tensor

from engine_adapters.reading.arena_slices import ArenaSlices
from engine_adapters.reading.decoded_slices import DecodedSlices
from engine_adapters.reading.piece import Piece
from engine_adapters.reading.section import Section, sections_of
from engine_adapters.reading.section_reads import SectionReads
from engine_adapters.reading.slice_format import SliceFormat
from engine_adapters.reading.slices import Slices
from kvstored_client import Client, Order, Region, SliceState

_MAY_COME = (SliceState.PENDING, SliceState.RESIDENT)


class Use(Protocol):
    """Of the bytes of a span, by a device that copies them, say. Thread-safe."""

    @property
    def is_over(self) -> bool:
        """Whether it needs them no more; never waits."""

    def wait(self) -> None:
        """Returns, or raises what went wrong, when it needs them no more."""


class SpanUses:
    """Those that last when the user has given a span back: its memory is released after them.

    The user adds to them before; any thread may ask.
    """

    def __init__(self) -> None:
        self._uses: list[Use] = []

    @property
    def are_over(self) -> bool:
        """Whether nobody reads the bytes any more."""
        return all(use.is_over for use in self._uses)

    def add(self, use: Use) -> None:
        """One more."""
        self._uses.append(use)

    def wait(self) -> None:
        """Waits for each of them."""
        for use in self._uses:
            # Who waits for what a use makes hears of its failure; here it only has to be over.
            with suppress(Exception):
                use.wait()


class Span:
    """Chunks that come together, one read for each section.

    One thread starts the reads, waits and releases; another one may look at what is there
    meanwhile, and say what it has reached. The caller starts ``reads`` in order and releases
    the span when it has taken what it wants: then no read can land in its region any more, and
    nobody reads it: a use that lasts longer is among its ``uses``.
    """

    def __init__(
        self,
        client: Client,
        slice_format: SliceFormat,
        region: Region,
        *,
        pieces: Sequence[Piece],
        first_chunk: int,
        order: Order,
        sections: Sequence[Section] | None = None,
        window_bytes: int = 0,
    ) -> None:
        """``sections`` are those to read (default: all of the layout)."""
        self.pieces = tuple(pieces)
        self.first_chunk = first_chunk
        """Number of its first piece among those that its reader knows."""
        self._sections = sections_of(slice_format.layout) if sections is None else sections
        self._region = region
        self._decode_s = 0.0
        self._has_settled = False
        self.uses = SpanUses()
        """Of its bytes, by those that go on to read them when the caller has given it back."""
        self.reads = SectionReads(
            client,
            slice_format.layout,
            region,
            pieces=self.pieces,
            sections=self._sections,
            order=order,
            window_bytes=window_bytes,
        )
        codec = slice_format.codec
        self._slices: Slices = (
            ArenaSlices(self.reads, slice_format)
            if codec is None
            else DecodedSlices(self.reads, slice_format, codec, spent=self._add_decoding)
        )

    @property
    def chunk_count(self) -> int:
        """How many pieces it brings."""
        return len(self.pieces)

    @property
    def stop_token(self) -> int:
        """The position after its last token."""
        return self.pieces[-1].stop_position

    @property
    def layers(self) -> range:
        """Those that are read."""
        return range(self._sections[0].first_layer, self._sections[-1].stop_layer)

    @cached_property
    def payload_bytes(self) -> int:
        """Bytes that its reads bring, without headers of chunks and what lies between slices."""
        layout = self.reads.layout
        return sum(
            layout.slice_bytes(layer, piece.token_count)
            for piece in self.pieces
            for layer in self.layers
        )

    @property
    def decode_s(self) -> float:
        """Processor's time of decoding so far; 0 without a codec."""
        return self._decode_s

    @property
    def is_current(self) -> bool:
        """Whether the session lives that the bytes belong to; one system call."""
        return self._region.is_current

    @property
    def is_finished(self) -> bool:
        """Whether every read was started and is over, and no chunk is pending.

        Nothing can land in the region any more, nor will it.
        """
        if not self._has_settled:
            self._has_settled = self.reads.are_finished and all(
                self.state(chunk) is not SliceState.PENDING for chunk in range(self.chunk_count)
            )
        return self._has_settled

    def state(self, chunk: int) -> SliceState:
        """What became of all stored layers of a chunk of this span, as ``Slices.state``."""
        return self._slices.state(chunk)

    def is_lost(self, chunk: int, layer: int | None = None) -> bool:
        """Whether a chunk of this span, or one layer of it, will never be there as a whole."""
        return self._slices.state(chunk, layer) not in _MAY_COME

    def is_layer_settled(self, layer: int) -> bool:
        """Whether waiting for a stored layer brings nothing new.

        False before it is asked for, unless it never will be.
        """
        return all(
            self._slices.state(chunk, layer) is not SliceState.PENDING
            for chunk in range(self.chunk_count)
        )

    def wait(self, chunk: int, layer: int | None = None, *, timeout_s: float) -> None:
        """Blocks until one layer of a chunk has settled, or all in the read started last."""
        self._slices.wait(chunk, layer, timeout_s=timeout_s)

    def wait_layer(self, layer: int, timeout_s: float) -> int:
        """Blocks until a stored layer has settled; ``arrived_chunks`` of it then.

        0 for a layer whose read was never started.
        """
        deadline_s = time.monotonic() + timeout_s
        for chunk in range(self.chunk_count):
            left_s = max(0.0, deadline_s - time.monotonic())
            self._slices.wait(chunk, layer, timeout_s=left_s)
            if not left_s:
                break
        return self.arrived_chunks(layer)

    def wait_end(self, timeout_s: float) -> None:
        """Blocks until one more of its reads, or of its chunks, has settled, or all have."""
        unfinished = next((read for read in self.reads.started if not read.finished), None)
        if unfinished is not None:
            unfinished.wait(timeout_s)
            return
        chunks = range(self.chunk_count)
        pending = next((one for one in chunks if self.state(one) is SliceState.PENDING), None)
        if pending is not None:
            self._slices.wait(pending, timeout_s=timeout_s)

    def arrived_chunks(self, layer: int) -> int:
        """Leading chunks of which a stored layer is there now."""
        present = self._slices.arrived_chunks(layer)
        # As after any failure of the store. The bytes themselves last as long as the region:
        # each session has memory of its own.
        return present if self._region.is_current else 0

    def states(self, layer: int, chunk_count: int, *, first_chunk: int = 0) -> Tensor:
        """Slices of a stored layer: [chunks, *slice_shape], aliasing memory of the span.

        Those of ``chunk_count`` chunks from ``first_chunk`` of this span on, which all have as many
        tokens.
        """
        return self._slices.view(layer, range(first_chunk, first_chunk + chunk_count))

    def release(self) -> tuple[int, int]:
        """Cancels what is not read yet and frees the region once nobody uses it any more.

        That is when the daemon has let go of it and all uses are over. Returns the bytes that came
        from devices and from DRAM.
        """
        self.reads.cancel()
        self.uses.wait()
        self._slices.close()
        self.reads.close()
        return self.read_bytes()

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far."""
        reports = [read.report() for read in self.reads.started]
        return (
            sum(report.device_bytes for report in reports),
            sum(report.dram_bytes for report in reports),
        )

    def _add_decoding(self, duration_s: float) -> None:
        self._decode_s += duration_s
