"""The reads that bring one span, one for each section, and where its slices lie in the arena."""

import threading
from collections.abc import Sequence
from itertools import accumulate

from engine_adapters.reading.piece import Piece
from engine_adapters.reading.section import Section
from kvstored_client import Client, Order, Placement, Read, Region, StateLayout


def placement_of(section: Section, region: Region, offset: int, chunk_count: int) -> Placement:
    """Where a call with ``chunk_count`` chunks has them: from byte ``offset`` of ``region`` on."""
    return Placement(
        regions=(region,),
        base=region.offset + offset,
        layer_stride=chunk_count * section.slice_stride,
        chunk_stride=section.slice_stride,
    )


LAYERS_AHEAD = 2
"""A read with no more layers to come is nearly over: then the next one keeps the devices busy.
Two reads at once would share the devices evenly, and the first layers would come later."""

CHUNKS_AHEAD = 2
"""The same for reads that bring chunk after chunk."""

AT_ONCE = 1 << 30
"""So many chunks ahead let the next read begin with the one before it, however long that is."""


class SectionReads:
    """Starts the reads of a span in order and tells those who wait for one.

    ``region`` holds the sections one after the other. One thread starts, waits and closes; any
    thread may look and cancel. ``changed`` is notified when a read has started or none will.
    """

    def __init__(
        self,
        client: Client,
        layout: StateLayout,
        region: Region,
        *,
        pieces: Sequence[Piece],
        sections: Sequence[Section],
        order: Order,
        window_bytes: int = 0,
    ) -> None:
        """``window_bytes`` bounds each read in flight; 0 is the daemon's choice."""
        self.layout = layout
        self.region = region
        self.sections = sections
        self.order = order
        self.pieces = pieces
        self.chunk_count = len(pieces)
        self.started: list[Read] = []
        self.is_given_up = False
        """Whether no more reads will start: what was not asked for is lost."""
        self.is_cancelled = False
        self.reached_chunks = 0
        """Leading chunks that nobody needs any more."""
        self.changed = threading.Condition()
        self._numbers = {
            layer: number
            for number, section in enumerate(sections)
            for layer in range(section.first_layer, section.stop_layer)
        }
        self._offsets = list(
            accumulate((part.region_bytes(self.chunk_count) for part in sections), initial=0)
        )
        self._client = client
        self._window_bytes = window_bytes

    @property
    def are_all_started(self) -> bool:
        """Whether every section's read was started."""
        return len(self.started) == len(self.sections)

    @property
    def are_finished(self) -> bool:
        """Whether all are started and over: nothing lands in the region any more."""
        return self.are_all_started and all(read.finished for read in self.started)

    def is_nearly_over(self, chunks_ahead: int) -> bool:
        """Whether the read that was started last leaves the devices to the next one.

        One that brings chunk after chunk does so when it lacks ``chunks_ahead``.
        """
        if not self.started:
            return True
        if self.order is Order.LAYER_FIRST:
            return self.started[-1].is_layer_settled(self._watched_layer)
        if chunks_ahead >= AT_ONCE:
            return True
        return self.started[-1].is_chunk_settled(self._watched_chunk(chunks_ahead))

    def wait_nearly_over(self, chunks_ahead: int, timeout_s: float) -> None:
        """Blocks until ``is_nearly_over`` of the read that was started last."""
        if self.order is Order.LAYER_FIRST:
            self.started[-1].wait_layer(self._watched_layer, timeout_s)
        elif chunks_ahead < AT_ONCE:
            self.started[-1].wait_for(self._watched_chunk(chunks_ahead), timeout_s=timeout_s)

    def start(self, timeout_ms: int) -> None:
        """Starts the read of the next section."""
        number = len(self.started)
        section = self.sections[number]
        read = self._client.read(
            self.layout,
            [piece.key for piece in self.pieces],
            placement_of(section, self.region, self._offsets[number], self.chunk_count),
            order=self.order,
            first_layer=section.first_layer,
            layer_count=section.layer_count,
            window_bytes=self._window_bytes,
            timeout_ms=timeout_ms,
        )
        with self.changed:
            self.started.append(read)
            self.changed.notify_all()

    def give_up(self) -> None:
        """No more reads will be started. Of a span that was asked for as a whole all go on."""
        with self.changed:
            self.is_given_up = not self.are_all_started
            self.changed.notify_all()

    def reach(self, chunk_count: int) -> None:
        """Tells the daemon that nobody needs the first ``chunk_count`` chunks any more."""
        self.reached_chunks = chunk_count
        for read in self.started:
            read.advance(chunk_count)

    def cancel(self) -> None:
        """Tells the daemon to stop; returns at once."""
        with self.changed:
            self.is_cancelled = True
            self.changed.notify_all()
        for read in self.started:
            read.cancel()

    def close(self) -> None:
        """Waits until the daemon lets go of every read, and then frees the region."""
        for read in self.started:
            read.close()
        self.region.release()

    def read_of(self, layer: int) -> tuple[Read, int] | None:
        """The read of a stored layer and the layer's number in it; None before it was started."""
        number = self.number_of(layer)
        if number >= len(self.started):
            return None
        return self.started[number], layer - self.sections[number].first_layer

    def number_of(self, layer: int) -> int:
        """Which section a stored layer is in."""
        return self._numbers[layer]

    def offset_of(self, layer: int, chunk: int) -> int:
        """Bytes of the region before a slice."""
        number = self.number_of(layer)
        section = self.sections[number]
        slices = (layer - section.first_layer) * self.chunk_count + chunk
        return self._offsets[number] + slices * section.slice_stride

    @property
    def _watched_layer(self) -> int:
        layer_count = self.sections[len(self.started) - 1].layer_count
        return max(0, layer_count - 1 - LAYERS_AHEAD)

    def _watched_chunk(self, chunks_ahead: int) -> int:
        # Of a short span the first chunk that comes: it has the devices for itself until then.
        last = min(chunks_ahead, self.chunk_count - 1)
        return self.chunk_count - 1 - last if self.order is Order.HEAD_FIRST else last
