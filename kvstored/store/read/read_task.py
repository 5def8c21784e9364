"""What one read is asked to do: from where, to where, which layers, until when."""

from collections.abc import Callable
from dataclasses import dataclass

from kvstored.store.read.chunk_source import ChunkSource, FramedChunk, StoredChunk
from kvstored.store.read.placement import Fragments, Placement
from kvstored.store.read.plan import LayerRun
from kvstored_contract.board import Board
from kvstored_contract.limits import ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTarget:
    """Where bytes and progress go. ``notify`` wakes the client and must not block.

    An arena that ``takes_transfers`` lies on huge pages: devices transfer into it
    directly. Pages of 4 KiB make a transfer slower than a copy through private memory
    on huge pages, because the kernel hands them to the device one by one.
    """

    arena: memoryview
    takes_transfers: bool
    placement: Placement
    board: Board
    notify: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Layer range and limits of one read. ``deadline`` is on the monotonic clock."""

    first_layer: int
    layer_count: int
    window_bytes: int
    deadline: float


class ReadTask:
    """One read: its sources, target and options. Nothing of it changes."""

    def __init__(
        self,
        *,
        sources: tuple[ChunkSource | None, ...],
        target: ReadTarget,
        options: StreamOptions,
    ) -> None:
        self.sources = sources
        self.target = target
        self.options = options
        self.copy_bytes = sum(
            source.geometry.extent_bytes for source in sources if isinstance(source, FramedChunk)
        )
        """Bytes of the chunks that are copied from DRAM, all of their layers."""
        self._is_placement_aligned = target.placement.is_aligned(
            chunk_count=len(sources), layer_count=options.layer_count
        )
        self._fragments_per_slice = target.placement.fragments_per_slice(max(len(sources), 1))

    @property
    def dram_chunks(self) -> int:
        """Chunks that are copied from DRAM."""
        return sum(isinstance(source, FramedChunk) for source in self.sources)

    @property
    def nvme_chunks(self) -> int:
        """Chunks that are read from devices."""
        return sum(isinstance(source, StoredChunk) for source in self.sources)

    def stored(self, run: LayerRun) -> StoredChunk:
        """The chunk of a run that is read from a device."""
        source = self.sources[run.chunk]
        assert isinstance(source, StoredChunk)
        return source

    def framed(self, run: LayerRun) -> FramedChunk:
        """The chunk of a run that is copied from DRAM."""
        source = self.sources[run.chunk]
        assert isinstance(source, FramedChunk)
        return source

    def slice_bytes(self, run: LayerRun) -> tuple[int, ...]:
        """The length of each slice of a run."""
        source = self.sources[run.chunk]
        assert source is not None
        return source.geometry.slice_bytes[run.first_layer : run.end_layer]

    def layers(self, run: LayerRun) -> slice:
        """The layers of a run, counted from the first one of the read."""
        first = run.first_layer - self.options.first_layer
        return slice(first, first + run.layer_count)

    def fragments(self, run: LayerRun) -> tuple[Fragments, ...]:
        """Where the slices of a run go in the arena, one entry for each layer."""
        return self.target.placement.fragments(
            chunk=run.chunk,
            first_layer=run.first_layer - self.options.first_layer,
            slice_bytes=self.slice_bytes(run),
            chunk_count=len(self.sources),
        )

    def takes_transfers(self, run: LayerRun) -> bool:
        """Whether a device may transfer a run straight into the arena.

        Only whole pages are transferred, so every fragment of its slices must be made of them.
        """
        if not (self.target.takes_transfers and self._is_placement_aligned):
            return False
        unit_bytes = ALIGNMENT_BYTES * self._fragments_per_slice
        return not any(size % unit_bytes for size in set(self.slice_bytes(run)))
