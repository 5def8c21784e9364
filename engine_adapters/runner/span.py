"""Consecutive chunks of a history on their way from the store into the arena."""

from collections.abc import Sequence

from torch import Tensor

from engine_adapters.runner.section import Section, sections_of
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order, Read, Region

LAYERS_AHEAD = 2
"""A read with no more layers to come is nearly over: then the next one keeps the devices busy.
Two reads at once would share the devices evenly, and the first layers would come later."""


class Span:
    """Chunks that come together, one read for each section. One thread only.

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
        self._client = client
        self._format = state_format
        self._region = region
        self._keys = keys
        self._order = order
        self._sections = sections_of(state_format.layout) if sections is None else sections
        self._reads: list[Read] = []

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
            timeout_ms=timeout_ms,
        )
        self._reads.append(read)

    def resident_chunks(self) -> int:
        """Leading chunks that may still come whole: all but what is known to be lost."""
        reports = [read.report() for read in self._reads if read.finished]
        return min([self.chunk_count, *(report.resident_prefix for report in reports)])

    def wait_layer(self, layer: int, timeout_s: float) -> int:
        """Blocks until a stored layer has settled; how many leading chunks of it are there.

        0 for a layer whose read was never started.
        """
        number = self._section_of(layer)
        if number >= len(self._reads):
            return 0
        read, local = self._reads[number], layer - self._sections[number].first_layer
        present = self.chunk_count
        if not read.wait_layer(local, timeout_s):
            missing = (n for n in range(self.chunk_count) if not read.is_resident(n, local))
            present = next(missing, self.chunk_count)
        # Bytes of a lost session may be those of another region in the next one.
        return present if self._region.is_current else 0

    def states(self, layer: int, chunk_count: int) -> Tensor:
        """The leading slices of a stored layer: [chunks, *slice_shape], aliasing the arena."""
        section = self._sections[self._section_of(layer)]
        shape = self._format.slice_shape(layer)
        itemsize = self._format.dtype.itemsize
        place = (layer - section.first_layer) * self.chunk_count * section.slice_stride
        padded = self._region.tensor(
            self._format.dtype,
            (chunk_count, section.slice_stride // itemsize),
            self._offset_of(section) + place,
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
