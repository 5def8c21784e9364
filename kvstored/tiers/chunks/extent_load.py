"""Whole extents read into memory that no client can write, or into frames, and verified there."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from kvstored.counters import Counters
from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.io.device import READS_MAX, DeviceError
from kvstored.io.engine import Background, IoEngine, IoRequest, Operation
from kvstored.io.transfer import submit_split
from kvstored.store.read.chunk_source import StoredChunk, is_header_of
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored_contract.reasons import Reason


def load_extent(
    engine: IoEngine,
    source: StoredChunk,
    memory: memoryview,
    *,
    background: Background | None,
) -> Future[DeviceError | None]:
    """Begins to read a chunk's extent to the start of ``memory``; returns at once.

    The future resolves to the error if any, on a thread of the engine; until then ``memory`` is
    the engine's. It always resolves: the kernel ends every transfer of a drive with an error at
    its time-out for that drive, and other work of the device cannot keep this back for ever
    (``io/schedule.py``). So who waits for a client gives up at the client's deadline, and who
    waits for nobody may wait for the drive. ``background`` says which kind of work it is; None,
    that a client waits for it.
    """
    landed: Future[DeviceError | None] = Future()
    extent = source.record.extent
    submit_split(
        engine,
        IoRequest(
            device_index=extent.device_index,
            operation=Operation.READ,
            buffers=(memory[: source.geometry.extent_bytes],),
            offset=extent.offset,
            done=landed.set_result,
            background=background,
        ),
    )
    return landed


def is_intact(source: StoredChunk, memory: memoryview) -> bool:
    """Whether ``memory`` holds the chunk that the index vouches for, every slice verified."""
    page = bytes(memory[:HEADER_BYTES])
    try:
        header = ExtentHeader.decode(page)
    except FormatError:
        return False
    if not is_header_of(header, page, source):
        return False
    geometry = source.geometry
    return all(
        checksum(memory[start : start + size]) == part.checksum
        for start, size, part in zip(
            geometry.slice_offsets, geometry.slice_bytes, header.slices, strict=False
        )
        if size
    )


def outcome_of(
    source: StoredChunk,
    memory: memoryview,
    reads: Iterator[DeviceError | None],
    counters: Counters,
) -> Reason:
    """UNSPECIFIED where ``memory`` has the chunk that the index vouches for, else why not.

    What is taken from ``reads`` is how one more read into ``memory`` ended. A transfer may go wrong
    once, so only READS_MAX reads that do not match are CHECKSUM. A match after a mismatch counts as
    ``unconfirmed_chunks``.
    """
    for reads_before, error in enumerate(islice(reads, READS_MAX)):
        if error is not None:
            return Reason.DEVICE_FAILED
        if is_intact(source, memory):
            if reads_before:
                counters.add("unconfirmed_chunks")
            return Reason.UNSPECIFIED
    return Reason.CHECKSUM


@dataclass(frozen=True, slots=True)
class FrameLoad:
    """A chunk on its way into a claimed frame; ``end`` must follow."""

    source: StoredChunk
    frame: Frame
    landed: Future[DeviceError | None]


class NotLoaded(Enum):
    """Why nothing is read."""

    NO_ROOM = "no room"
    """No frame may go for it now; that may change at any time."""
    NOT_NEEDED = "not needed"
    """It is there or on its way, nobody may read it any more, or it fits no slab of DRAM."""


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
    ) -> FrameLoad | NotLoaded:
        """Claims a frame and begins to read."""
        if source.record.extent.byte_count > self._dram.space.class_bytes_max:
            # A layout of before the slabs were made smaller.
            return NotLoaded.NOT_NEEDED
        claim = self._dram.claim(
            source.chunk,
            layout_id=source.record.layout_id,
            geometry=source.geometry,
            class_bytes=source.record.extent.byte_count,
            deadline=time.monotonic(),
            may_evict=may_evict,
        )
        if claim is None:
            return NotLoaded.NO_ROOM
        if not claim.is_new:
            return NotLoaded.NOT_NEEDED
        frame = claim.frame
        try:
            # Deleted since it was looked up: nothing is loaded that nobody may read.
            if self._store.find([source.chunk]) != [source.record]:
                self._dram.abandon(frame, Reason.NOT_STORED)
                return NotLoaded.NOT_NEEDED
            landed = load_extent(self._engine, source, frame.view, background=self._background)
        except BaseException:
            self._dram.abandon(frame, Reason.INTERNAL)
            raise
        return FrameLoad(source, frame, landed)

    def end(self, load: FrameLoad) -> bool:
        """Waits for a load and publishes the chunk; False when it is not intact or not read."""
        frame, source = load.frame, load.source
        try:
            reason = outcome_of(source, frame.view, self._reads(load), self._store.counters)
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

    def _reads(self, load: FrameLoad) -> Iterator[DeviceError | None]:
        """How the read under way ended, and each further one that is asked for."""
        landed = load.landed
        while True:
            yield landed.result()
            landed = load_extent(
                self._engine, load.source, load.frame.view, background=self._background
            )
