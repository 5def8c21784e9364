"""The read path: each chunk from the fastest tier that has it."""

import logging
from collections.abc import Callable, Collection, Sequence

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import IndexFailure
from kvstored.store.read.chunk_source import (
    ChunkSource,
    FramedChunk,
    StoredChunk,
    stored_geometries,
)
from kvstored.store.read.placement import PlacementError
from kvstored.store.read.read_stream import ReadStream
from kvstored.store.read.read_task import ReadTarget, ReadTask, StreamOptions
from kvstored.store.read.reader import Reader
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Frame
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.requests import ReadRequest
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import ALIGNMENT_BYTES

LOGGER = logging.getLogger(__name__)

MATCH_BATCH_CHUNKS = 256
"""Keys that are looked up together."""


class ReadPath:
    """Finds and reads chunks. Thread-safe.

    ``on_read`` hears of each chunk that was read, and of what share of its layers: they are
    often read apart (those of another kind, those of another pipeline stage), and all of them
    together use the chunk once. ``on_damage`` hears of each chunk whose bytes did not match.
    """

    def __init__(
        self,
        *,
        store: ChunkStore,
        dram: DramTier,
        room: NvmeRoom,
        reader: Reader,
        bounce_bytes: int,
        counters: Counters,
        on_read: Callable[[ChunkSource, float], None],
        on_damage: Callable[[StoredChunk], None],
    ) -> None:
        self._store = store
        self._dram = dram
        self._room = room
        self._reader = reader
        self._bounce_bytes = bounce_bytes
        self._counters = counters
        self._on_read = on_read
        self._on_damage = on_damage

    def match(self, chunks: list[ChunkId]) -> int:
        """Length of the longest prefix of ``chunks`` that could be read now."""
        matched = 0
        for start in range(0, len(chunks), MATCH_BATCH_CHUNKS):
            batch = chunks[start : start + MATCH_BATCH_CHUNKS]
            expired = self.expired(batch)
            for chunk, is_visible in zip(batch, self.are_visible(batch), strict=True):
                if chunk in expired or not (is_visible or self._dram.contains(chunk)):
                    return matched
                matched += 1
        return matched

    def expired(self, chunks: Sequence[ChunkId]) -> set[ChunkId]:
        """Those of some chunks that nobody has used for too long, and nobody has pinned.

        The devices say so of what they have; DRAM of all others.
        """
        if not self._room.ages.is_on:
            return set()
        expired, absent = self._room.ages.expired(chunks)
        expired |= self._dram.ages.expired(absent)
        return expired - self._store.pins.among(expired)

    def are_visible(self, chunks: Sequence[ChunkId]) -> list[bool]:
        """Which chunks could be read from the devices now; does not ask the index."""
        # In this order: what is marked leaves the table, and loses its mark after that.
        leaving = [self._store.is_being_deleted(chunk) for chunk in chunks]
        stored = self._room.are_stored(chunks, without=self._store.failures.devices)
        return [
            is_stored and not is_leaving
            for is_stored, is_leaving in zip(stored, leaving, strict=True)
        ]

    def are_readable(self, chunks: Sequence[ChunkId]) -> list[bool]:
        """Which chunks could be read now, from any tier.

        What is staged is seen in DRAM, or after that on the devices: a third look finds what
        became durable and left DRAM between the first two.
        """
        are_visible = self.are_visible(chunks)
        others = [chunk for chunk, found in zip(chunks, are_visible, strict=True) if not found]
        if not others:
            return are_visible
        here = self._dram.which_are_here(others)
        absent = [chunk for chunk in others if chunk not in here]
        if absent:
            found_late = zip(absent, self.are_visible(absent), strict=True)
            here.update(chunk for chunk, is_found in found_late if is_found)
        return [found or chunk in here for chunk, found in zip(chunks, are_visible, strict=True)]

    def read(self, request: ReadRequest) -> ReadStream:
        """Plans and starts one read; returns at once.

        Raises PlacementError when the placement needs a copy that the daemon has no
        buffer for.
        """
        self._check_bounce(request)
        chunks = [ChunkId(request.namespace_id, key) for key in request.keys]
        # Before the pins: what somebody has pinned does not expire.
        expired = self.expired(chunks)
        # Before each is pinned, which counts as a use of what it was used with before.
        self._dram.hints.used_together([chunk for chunk in chunks if chunk not in expired])
        frames = {
            index: frame
            for index, chunk in enumerate(chunks)
            if chunk not in expired and (frame := self._dram.pin(chunk)) is not None
        }
        others = [
            chunk
            for index, chunk in enumerate(chunks)
            if index not in frames and chunk not in expired
        ]
        self._store.pins.pin(others)

        def finished(stream: ReadStream) -> None:
            self._dram.unpin(frames.values())
            self._store.pins.unpin(others)
            self._account(stream, share=share_read(request))

        try:
            sources = self._sources(request, chunks, frames, expired)
        except BaseException:
            self._dram.unpin(frames.values())
            self._store.pins.unpin(others)
            raise
        return self._reader.start(
            _task(request, sources),
            order=request.order,
            on_damage=self._on_damage,
            on_finish=finished,
        )

    def _sources(
        self,
        request: ReadRequest,
        chunks: list[ChunkId],
        frames: dict[int, Frame],
        expired: Collection[ChunkId],
    ) -> tuple[ChunkSource | None, ...]:
        """Where each chunk is read from; everything that is found is pinned already."""
        others = [
            chunk
            for index, chunk in enumerate(chunks)
            if index not in frames and chunk not in expired
        ]
        stored = iter(self._stored(others, request.layout))
        layout_id = request.layout.layout_id
        sources: list[ChunkSource | None] = []
        for index, chunk in enumerate(chunks):
            source: ChunkSource | None = None
            if chunk in expired:
                sources.append(None)
                continue
            if (frame := frames.get(index)) is None:
                source = next(stored)
            elif frame.layout_id == layout_id:
                source = FramedChunk(chunk=chunk, frame=frame.view, geometry=frame.geometry)
            sources.append(source if source and self._is_taken(source, request) else None)
        return tuple(sources)

    def _is_taken(self, source: ChunkSource, request: ReadRequest) -> bool:
        """Whether what a chunk has, which may be a short one, fits the places of the request."""
        if not fits_blocks(source, request):
            return False
        return isinstance(source, FramedChunk) or fits_bounce(source, request, self._bounce_bytes)

    def _stored(self, chunks: list[ChunkId], layout: StateLayout) -> list[StoredChunk | None]:
        """Those of the layout's chunks that the index knows, None for the others.

        While the index cannot be read these are misses, and DRAM serves all the same.
        """
        stored: list[StoredChunk | None] = [None] * len(chunks)
        try:
            found = [
                (number, chunk, record)
                for number, (chunk, record) in enumerate(
                    zip(chunks, self._store.find(chunks), strict=True)
                )
                if record is not None and record.layout_id == layout.layout_id
            ]
            entries = [(chunk, record) for _, chunk, record in found]
            geometries = stored_geometries(self._store.index, entries, layout)
            for (number, chunk, record), geometry in zip(found, geometries, strict=True):
                if geometry is None:
                    # It can never be read: out of service it makes way for a new put of its key.
                    self._store.quarantine(chunk, record)
                else:
                    stored[number] = self._store.source(chunk, record, geometry)
        except IndexFailure as error:
            LOGGER.warning("chunks on the devices are misses: %s", error)
        return stored

    def cancel(self, stream: ReadStream) -> None:
        """Gives up what is not in flight."""
        self._reader.cancel(stream)

    def give_up(self, stream: ReadStream) -> None:
        """Gives up what is late and not in flight; see ``Reader.give_up``."""
        self._reader.give_up(stream)

    def _check_bounce(self, request: ReadRequest) -> None:
        placement, chunk_count = request.placement, len(request.keys)
        large = [
            layer
            for layer in range(request.first_layer, request.first_layer + request.layer_count)
            if request.layout.slice_bytes(layer) > self._bounce_bytes
        ]
        for layer in large:
            slice_bytes = request.layout.slice_bytes(layer)
            if not placement.is_slice_aligned(
                layer=layer - request.first_layer, byte_count=slice_bytes, chunk_count=chunk_count
            ):
                raise PlacementError(
                    f"layer {layer} has slices of {slice_bytes} bytes, which need arena offsets "
                    f"and lengths that are multiples of 4096; only slices up to "
                    f"{self._bounce_bytes} bytes may lie elsewhere"
                )

    def _account(self, stream: ReadStream, *, share: float) -> None:
        self._counters.add("read_requests")
        task = stream.task
        self._counters.add("read_device_bytes", stream.progress.device_bytes)
        self._counters.add("read_dram_bytes", stream.progress.dram_bytes)
        self._counters.add("dram_hit_chunks", task.dram_chunks)
        self._counters.add("nvme_hit_chunks", task.nvme_chunks)
        self._counters.add("missed_chunks", task.sources.count(None))
        sources = [source for source in task.sources if source is not None]
        # Hits in DRAM count too: what is read most must not leave the devices first.
        self._room.used_together([source.chunk for source in sources])
        for source in sources:
            self._on_read(source, share)


def _task(request: ReadRequest, sources: tuple[ChunkSource | None, ...]) -> ReadTask:
    return ReadTask(
        sources=sources,
        target=ReadTarget(
            arena=request.arena,
            takes_transfers=request.takes_transfers,
            placement=request.placement,
            board=request.board,
            notify=request.notify,
        ),
        options=StreamOptions(
            first_layer=request.first_layer,
            layer_count=request.layer_count,
            window_bytes=request.window_bytes,
            deadline=request.deadline,
        ),
    )


def share_read(request: ReadRequest) -> float:
    """Layers that the request reads, as a share of those of its layout that store anything."""
    layout = request.layout
    if request.layer_count == layout.layer_count:
        return 1.0
    is_stored = [layout.slice_bytes(layer) > 0 for layer in range(layout.layer_count)]
    layers = slice(request.first_layer, request.first_layer + request.layer_count)
    return sum(is_stored[layers]) / sum(is_stored)


def fits_bounce(source: ChunkSource, request: ReadRequest, bounce_bytes: int) -> bool:
    """Whether each slice fits the private memory, or is made of whole pages of its places.

    Of a complete chunk ``_check_bounce`` says so before. A short one may have neither.
    """
    stop = request.first_layer + request.layer_count
    slice_bytes = source.geometry.slice_bytes[request.first_layer : stop]
    if max(slice_bytes, default=0) <= bounce_bytes:
        return True
    unit_bytes = ALIGNMENT_BYTES * request.placement.fragments_per_slice(len(request.keys))
    return not any(size > bounce_bytes and size % unit_bytes for size in slice_bytes)


def fits_blocks(source: ChunkSource, request: ReadRequest) -> bool:
    """Whether the slices of a chunk, which may be a short one, can be cut into blocks."""
    fragments = request.placement.fragments_per_slice(len(request.keys))
    return not any(size % fragments for size in source.geometry.slice_bytes)
