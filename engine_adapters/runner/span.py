"""Consecutive chunks of a history on their way from the store into the arena."""

from collections.abc import Sequence

from torch import Tensor

from engine_adapters.runner.section import Section, sections_of
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order, Read, Region, SliceState

LAYERS_AHEAD = 2
"""A read with no more layers to come is nearly over: then the next one keeps the devices busy.
Two reads at once would share the devices evenly, and the first layers would come later."""

CHUNKS_AHEAD = 2
"""The same for reads that bring chunk after chunk."""


class Span:
    """Chunks that come together, one read for each section.

    One thread starts the reads, waits and releases; another one may look at what is there
    meanwhile, and say what it has reached.

    ``region`` holds the sections one after the other. The caller starts the reads in
    order and releases the span when it has taken what it wants. ``sections`` are those to
    read (default: all of the layout).
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        region: Region,
        *,
        keys: Sequence[bytes],
        first_chunk: int,
        order: Order,
        sections: Sequence[Section] | None = None,
    ) -> None:
        self.first_chunk = first_chunk
        self.chunk_count = len(keys)
        self.window_bytes = 0
        """Bytes of each read in flight at most; 0 is the daemon's choice."""
        self._client = client
        self._format = state_format
        self._region = region
        self._keys = keys
        self._order = order
        self._sections = sections_of(state_format.layout) if sections is None else sections
        self._reads: list[Read] = []
        self._is_given_up = False

    @property
    def token_count(self) -> int:
        """Tokens of all chunks."""
        return self.chunk_count * self._format.layout.chunk_tokens

    @property
    def first_token(self) -> int:
        """Tokens of the history before this span."""
        return self.first_chunk * self._format.layout.chunk_tokens

    @property
    def is_asked_for(self) -> bool:
        """Whether every section's read was started."""
        return len(self._reads) == len(self._sections)

    @property
    def lets_next_start(self) -> bool:
        """Whether the read that was started last is nearly over, or need not come first."""
        if not self._reads or self._order is not Order.LAYER_FIRST:
            return True
        layer_count = self._sections[len(self._reads) - 1].layer_count
        watched = max(0, layer_count - 1 - LAYERS_AHEAD)
        return self._reads[-1].is_layer_settled(watched)

    @property
    def is_current(self) -> bool:
        """Whether the session lives that the bytes belong to; one system call."""
        return self._region.is_current

    @property
    def is_finished(self) -> bool:
        """Whether every section's read was started and is over: ``release`` does not wait.

        Nothing can land in the region any more, nor will it.
        """
        return self.is_asked_for and all(read.finished for read in self._reads)

    def start_read(self, timeout_ms: int) -> None:
        """Starts the read of the next section."""
        section = self._sections[len(self._reads)]
        read = self._client.read(
            self._format.layout,
            self._keys,
            section.placement(self._region, self._offset_of(section), self.chunk_count),
            order=self._order,
            first_layer=section.first_layer,
            layer_count=section.layer_count,
            window_bytes=self.window_bytes,
            timeout_ms=timeout_ms,
        )
        self._reads.append(read)

    def give_up(self) -> None:
        """No more reads will be started: what was not asked for is lost."""
        self._is_given_up = True

    def resident_chunks(self) -> int:
        """Leading chunks that may still come whole: all but what is known to be lost."""
        if self._is_given_up:
            return 0
        reports = [read.report() for read in self._reads if read.finished]
        return min([self.chunk_count, *(report.resident_prefix for report in reports)])

    def is_resident(self, chunk: int) -> bool:
        """Whether all stored layers of a chunk of this span are there, counted from its first."""
        return self.is_asked_for and all(read.is_resident(chunk) for read in self._reads)

    def is_lost(self, chunk: int) -> bool:
        """Whether a chunk of this span will never be there as a whole."""
        return self._is_given_up or any(
            read.is_chunk_settled(chunk) and not read.is_resident(chunk) for read in self._reads
        )

    def is_layer_asked_for(self, layer: int) -> bool:
        """Whether the read of a stored layer was started."""
        return self._section_of(layer) < len(self._reads)

    def is_layer_settled(self, layer: int) -> bool:
        """Whether waiting for a stored layer brings nothing new.

        False before it is asked for, unless it never will be.
        """
        number = self._section_of(layer)
        if number >= len(self._reads):
            return self._is_given_up
        return self._reads[number].is_layer_settled(layer - self._sections[number].first_layer)

    def reach(self, chunk_count: int) -> None:
        """Tells the daemon that the engine needs the first ``chunk_count`` chunks no more."""
        for read in self._reads:
            read.advance(chunk_count)

    def cancel(self) -> None:
        """Tells the daemon to stop; returns at once."""
        for read in self._reads:
            read.cancel()

    def wait_chunk(self, chunk: int, timeout_s: float) -> None:
        """Blocks until a chunk has settled in the read that was started last."""
        self._reads[-1].wait_for(chunk, timeout_s=timeout_s)

    def wait_turn(self, timeout_s: float) -> bool:
        """Blocks until the read that was started last is nearly over; whether it is."""
        if self._order is Order.LAYER_FIRST:
            layer_count = self._sections[len(self._reads) - 1].layer_count
            self._reads[-1].wait_layer(max(0, layer_count - 1 - LAYERS_AHEAD), timeout_s)
            return self.lets_next_start
        last = min(CHUNKS_AHEAD, self.chunk_count - 1)
        if self._order is Order.HEAD_FIRST:
            last = self.chunk_count - 1 - last
        self._reads[-1].wait_for(last, timeout_s=timeout_s)
        return self._reads[-1].is_chunk_settled(last)

    def wait_layer(self, layer: int, timeout_s: float) -> int:
        """Blocks until a stored layer has settled; ``arrived_chunks`` of it then.

        0 for a layer whose read was never started.
        """
        number = self._section_of(layer)
        if number >= len(self._reads):
            return 0
        self._reads[number].wait_layer(layer - self._sections[number].first_layer, timeout_s)
        return self.arrived_chunks(layer)

    def wait_slice(self, layer: int, chunk: int, timeout_s: float) -> None:
        """Blocks until a stored layer of a chunk has settled; its read was started."""
        number = self._section_of(layer)
        local = layer - self._sections[number].first_layer
        self._reads[number].wait_for(chunk, local, timeout_s=timeout_s)

    def is_slice_lost(self, layer: int, chunk: int) -> bool:
        """Whether a stored layer of a chunk will never be there."""
        number = self._section_of(layer)
        if number >= len(self._reads):
            return self._is_given_up
        local = layer - self._sections[number].first_layer
        state = self._reads[number].state(chunk, local)
        return state not in (SliceState.PENDING, SliceState.RESIDENT)

    def arrived_chunks(self, layer: int) -> int:
        """Leading chunks of which a stored layer is there now."""
        number = self._section_of(layer)
        if number >= len(self._reads):
            return 0
        read, local = self._reads[number], layer - self._sections[number].first_layer
        missing = (n for n in range(self.chunk_count) if not read.is_resident(n, local))
        present = next(missing, self.chunk_count)
        # As after any failure of the store. The bytes themselves last as long as the region:
        # each session has memory of its own.
        return present if self._region.is_current else 0

    def states(self, layer: int, chunk_count: int, *, first_chunk: int = 0) -> Tensor:
        """Slices of a stored layer: [chunks, *slice_shape], aliasing the arena.

        Those of ``chunk_count`` chunks from ``first_chunk`` of this span on.
        """
        section = self._sections[self._section_of(layer)]
        shape = self._format.slice_shape(layer)
        itemsize = self._format.dtype.itemsize
        slices = (layer - section.first_layer) * self.chunk_count + first_chunk
        padded = self._region.tensor(
            self._format.dtype,
            (chunk_count, section.slice_stride // itemsize),
            self._offset_of(section) + slices * section.slice_stride,
        )
        used = self._format.layout.slice_bytes(layer) // itemsize
        return padded[:, :used].view(chunk_count, *shape)

    def release(self) -> tuple[int, int]:
        """Cancels what is not read yet and frees the region once the daemon lets go of it.

        Returns the bytes that came from devices and from DRAM.
        """
        for read in self._reads:
            read.close()
        self._region.release()
        return self.read_bytes()

    def read_bytes(self) -> tuple[int, int]:
        """Bytes that came from devices and from DRAM so far."""
        reports = [read.report() for read in self._reads]
        return (
            sum(report.device_bytes for report in reports),
            sum(report.dram_bytes for report in reports),
        )

    def _section_of(self, layer: int) -> int:
        return next(n for n, part in enumerate(self._sections) if layer < part.stop_layer)

    def _offset_of(self, section: Section) -> int:
        before = self._sections[: self._sections.index(section)]
        return sum(part.region_bytes(self.chunk_count) for part in before)
