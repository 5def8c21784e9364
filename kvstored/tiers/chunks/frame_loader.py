"""Whole chunks from the devices into frames of DRAM, verified before anybody can read them."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.engine import Background, IoEngine
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.store.read.stored_geometry import stored_geometries
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.extent_load import is_intact, load_extent
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored_contract.reasons import Reason


@dataclass(frozen=True, slots=True)
class FrameLoad:
    """A chunk on its way into a claimed frame; ``end`` must follow."""

    source: StoredChunk
    frame: Frame
    landed: Future[DeviceError | None]


class FrameLoader:
    """Loads chunks that the caller keeps pinned in ``store``. Thread-safe."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, background: Background
    ) -> None:
        self._store = store
        self._dram = dram
        self._engine = engine
        self._background = background

    def begin(
        self, source: StoredChunk, *, may_evict: Callable[[ChunkId], bool]
    ) -> FrameLoad | None:
        """Claims a frame and begins to read; None when there is no room, or the chunk is there."""
        claim = self._dram.claim(
            source.chunk,
            layout_id=source.record.layout_id,
            geometry=source.geometry,
            class_bytes=source.record.extent.byte_count,
            deadline=time.monotonic(),
            may_evict=may_evict,
        )
        if claim is None or not claim.is_new:
            return None
        frame = claim.frame
        try:
            # Deleted since it was looked up: nothing is loaded that nobody may read.
            if self._store.find([source.chunk]) != [source.record]:
                self._dram.abandon(frame, Reason.NOT_STORED)
                return None
            landed = load_extent(self._engine, source, frame.view, background=self._background)
        except BaseException:
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        return FrameLoad(source, frame, landed)

    def end(self, load: FrameLoad) -> bool:
        """Waits for a load and publishes the chunk; False when it is not intact or not read."""
        frame, source = load.frame, load.source
        try:
            reason = self._outcome(load)
        except BaseException:
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        if reason is Reason.UNSPECIFIED:
            self._dram.publish(frame, FrameState.CLEAN)
            frame.durable.set_result(Reason.UNSPECIFIED)
            return True
        self._dram.abandon(frame, reason)
        if reason is Reason.CHECKSUM:
            self._store.quarantine(source.chunk, source.record)
        return False

    def _outcome(self, load: FrameLoad) -> Reason:
        if load.landed.result() is not None:
            return Reason.DEVICE_FAILED
        is_whole = is_intact(load.source, load.frame.view)
        return Reason.UNSPECIFIED if is_whole else Reason.CHECKSUM


class ChunkFetcher:
    """Thread-safe. ``background`` says which kind of work the reads are."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, background: Background
    ) -> None:
        self._store = store
        self._loader = FrameLoader(store=store, dram=dram, engine=engine, background=background)

    def fetch(
        self, chunks: Sequence[ChunkId], *, may_evict: Callable[[ChunkId], bool]
    ) -> list[StoredChunk]:
        """Loads those of the chunks that the devices have and DRAM has not, and returns them.

        Without room, and where a chunk is not intact, it is left out. Waits for the devices, and
        raises IndexFailure.
        """
        self._store.pins.pin(chunks)
        loads: list[FrameLoad] = []
        fetched: list[StoredChunk] = []
        try:
            for source in self._sources(chunks):
                load = self._loader.begin(source, may_evict=may_evict)
                if load is not None:
                    loads.append(load)
        finally:
            # Whatever went wrong, nobody may wait for these frames.
            with ExitStack() as ends:
                ends.callback(self._store.pins.unpin, chunks)
                for load in loads:
                    ends.callback(self._end, load, fetched)
        return fetched

    def _end(self, load: FrameLoad, fetched: list[StoredChunk]) -> None:
        if self._loader.end(load):
            fetched.append(load.source)

    def _sources(self, chunks: Sequence[ChunkId]) -> Iterator[StoredChunk]:
        """Where the chunks lie that the devices have and that can be read."""
        index = self._store.index
        found = zip(chunks, self._store.find(chunks), strict=True)
        stored = [(chunk, record) for chunk, record in found if record is not None]
        for layout_id, group in groupby(stored, key=lambda entry: entry[1].layout_id):
            layout = index.layout(layout_id)
            entries = list(group)
            if layout is None:
                continue
            for (chunk, record), geometry in zip(
                entries, stored_geometries(index, entries, layout), strict=True
            ):
                if geometry is not None:
                    yield self._store.source(chunk, record, geometry)
