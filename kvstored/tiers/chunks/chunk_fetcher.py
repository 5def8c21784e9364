"""Chunks that DRAM lacks, fetched from the devices as a group."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby

from kvstored.format.identity import ChunkId
from kvstored.io.engine import Background, IoEngine
from kvstored.store.read.chunk_source import StoredChunk, stored_geometries
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.extent_load import FrameLoad, FrameLoader, NotLoaded


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What became of some chunks: those that were ``loaded``, and those that found no room."""

    loaded: list[StoredChunk]
    unplaced: list[ChunkId]


class ChunkFetcher:
    """Thread-safe. ``background`` says which kind of work the reads are."""

    def __init__(
        self, *, store: ChunkStore, dram: DramTier, engine: IoEngine, background: Background
    ) -> None:
        self._store = store
        self._loader = FrameLoader(store=store, dram=dram, engine=engine, background=background)

    def fetch(self, chunks: Sequence[ChunkId], *, may_evict: Callable[[ChunkId], bool]) -> Fetched:
        """Loads those of the chunks that the devices have and DRAM has not.

        Where a chunk is not intact, it is left out. Waits for the devices, and raises IndexFailure.
        """
        self._store.pins.pin(chunks)
        loads: list[FrameLoad] = []
        fetched = Fetched(loaded=[], unplaced=[])
        try:
            for source in self._sources(chunks):
                load = self._loader.begin(source, may_evict=may_evict)
                if isinstance(load, FrameLoad):
                    loads.append(load)
                elif load is NotLoaded.NO_ROOM:
                    fetched.unplaced.append(source.chunk)
        finally:
            # Whatever went wrong, nobody may wait for these frames.
            with ExitStack() as ends:
                ends.callback(self._store.pins.unpin, chunks)
                for load in loads:
                    ends.callback(self._end, load, fetched.loaded)
        return fetched

    def _end(self, load: FrameLoad, loaded: list[StoredChunk]) -> None:
        if self._loader.end(load):
            loaded.append(load.source)

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
