"""The DRAM tier: frames that hold chunks as they lie on the device.

Memory is reserved and populated at start and never grows. Invariants: a frame is
given away again only when it is not dirty, nobody has it pinned, and its key no longer
names it; a key names at most one frame.
"""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

import numpy as np

from kvstored.format.extent import Extent
from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.io.memory import AlignedMemory
from kvstored.store.allocator import Allocator
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason

VICTIMS_LOOKED_AT_MAX = 256
"""Pinned or dirty frames that are passed over before the tier counts as full."""
OPEN_SHARE_MAX = 0.5
"""Part of the tier that the frames of open chunks may take: they cannot be evicted."""
LOOK_INTERVAL_S = 0.1
"""How often one that waits for room looks whether anybody still wants it to."""


class FrameState(Enum):
    """Life of a frame, in order."""

    FILLING = "filling"
    DIRTY = "dirty"
    CLEAN = "clean"


@dataclass(slots=True, kw_only=True, eq=False)
class Frame:
    """Memory of one chunk. Fields are guarded by the tier's lock.

    ``durable`` resolves when the chunk is on the devices, or to why it is not.
    """

    chunk: ChunkId
    extent: Extent
    view: memoryview
    layout_id: bytes
    geometry: ChunkGeometry
    state: FrameState = FrameState.FILLING
    pins: int = 0
    is_dropped: bool = False
    durable: Future[Reason] = field(default_factory=Future)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenFrame:
    """Memory of a chunk that is being filled and has no key yet. It belongs to one owner.

    ``share_bytes`` is its part of a slab, which is more than the frame where frames do not
    fill their slab.
    """

    extent: Extent
    share_bytes: int
    view: memoryview
    layout: StateLayout


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer to a claim: a frame to fill, or the one that the key names already."""

    frame: Frame
    is_new: bool


def _always(_: ChunkId) -> bool:
    return True


class DramTier:
    """A fixed number of bytes for frames. Thread-safe."""

    def __init__(
        self, *, capacity_bytes: int, slab_bytes: int, policy: EvictionPolicy[ChunkId]
    ) -> None:
        self.capacity_bytes = capacity_bytes // slab_bytes * slab_bytes
        self._memory = AlignedMemory(self.capacity_bytes).view
        self.memory = np.frombuffer(self._memory, np.uint8)
        """All frames: uint8 [capacity_bytes], which extents are offsets into."""
        self._allocator = Allocator(
            slab_bytes=slab_bytes,
            slab_counts=[capacity_bytes // slab_bytes],
            data_offset=0,
            slab_header_bytes=0,
        )
        self._policy = policy
        self._frames: dict[ChunkId, Frame] = {}
        self._open_bytes = 0
        self._room = threading.Condition()

    @property
    def class_bytes_max(self) -> int:
        """The largest chunk that fits a frame."""
        return self._allocator.class_bytes_max

    @property
    def used_bytes(self) -> int:
        """Bytes of all frames in use."""
        return self._allocator.used_bytes(0)

    @property
    def open_bytes(self) -> int:
        """Bytes of the frames of open chunks, with what they strand of their slabs."""
        return self._open_bytes

    @property
    def chunk_count(self) -> int:
        """Chunks that a key names."""
        return len(self._frames)

    def contains(self, chunk: ChunkId) -> bool:
        """Whether the chunk could be read from here now."""
        frame = self._frames.get(chunk)
        return frame is not None and frame.state is not FrameState.FILLING

    def claim(
        self,
        chunk: ChunkId,
        *,
        layout_id: bytes,
        geometry: ChunkGeometry,
        class_bytes: int,
        deadline: float,
        is_wanted: Callable[[], bool] = lambda: True,
        may_evict: Callable[[ChunkId], bool] = _always,
    ) -> Claim | None:
        """Reserves a frame to fill; waits for room until ``deadline``, then returns None.

        When the key already names a frame, that one is returned instead. ``is_wanted`` is
        asked now and then whether to wait on; ``may_evict`` whether a chunk may go for
        this one.
        """
        with self._room:
            while True:
                if (existing := self._frames.get(chunk)) is not None:
                    return Claim(existing, is_new=False)
                extent = self._take_extent(class_bytes, may_evict)
                if extent is not None:
                    frame = Frame(
                        chunk=chunk,
                        extent=extent,
                        view=self._memory[extent.offset : extent.end],
                        layout_id=layout_id,
                        geometry=geometry,
                    )
                    self._frames[chunk] = frame
                    return Claim(frame, is_new=True)
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or not is_wanted():
                    return None
                self._room.wait(min(remaining_s, LOOK_INTERVAL_S))

    def open(self, layout: StateLayout) -> OpenFrame | None:
        """Reserves a frame for a chunk that has no key yet; None when there is no room now.

        Nor is there when open frames would take more than OPEN_SHARE_MAX of the tier.
        """
        size = class_bytes(layout)
        per_slab = self._allocator.extents_per_slab(size)
        share_bytes = self._allocator.geometry.slab_bytes // max(per_slab, 1)
        with self._room:
            if self._open_bytes + share_bytes > OPEN_SHARE_MAX * self.capacity_bytes:
                return None
            extent = self._take_extent(size, _always)
            if extent is None:
                return None
            self._open_bytes += share_bytes
        view = self._memory[extent.offset : extent.end]
        return OpenFrame(extent=extent, share_bytes=share_bytes, view=view, layout=layout)

    def close(self, opened: OpenFrame) -> None:
        """Gives back an open frame."""
        with self._room:
            self._open_bytes -= opened.share_bytes
            self._allocator.free(opened.extent)
            self._room.notify_all()

    def adopt(self, opened: OpenFrame, chunk: ChunkId) -> Claim:
        """Gives the complete chunk in an open frame its key.

        The claimed frame is that memory, to be published or abandoned. When the key
        already names a frame, that one is returned and the open frame stays the owner's.
        """
        with self._room:
            if (existing := self._frames.get(chunk)) is not None:
                return Claim(existing, is_new=False)
            self._open_bytes -= opened.share_bytes
            layout = opened.layout
            frame = Frame(
                chunk=chunk,
                extent=opened.extent,
                view=opened.view,
                layout_id=layout.layout_id,
                geometry=ChunkGeometry.of(layout, layout.chunk_tokens),
            )
            self._frames[chunk] = frame
            return Claim(frame, is_new=True)

    def publish(self, frame: Frame, state: FrameState) -> None:
        """Makes a filled frame readable, DIRTY or CLEAN."""
        with self._room:
            frame.state = state
            if frame.is_dropped:
                self._release_if_unused(frame)
            else:
                self._policy.insert(frame.chunk, frame.extent.byte_count)
            self._room.notify_all()

    def settle(self, frame: Frame, reason: Reason) -> None:
        """Hears that a dirty frame's chunk is durable; without success the frame goes."""
        with self._room:
            frame.state = FrameState.CLEAN
            if reason is not Reason.UNSPECIFIED:
                self._forget(frame)
            self._release_if_unused(frame)
            self._room.notify_all()
        frame.durable.set_result(reason)

    def abandon(self, frame: Frame, reason: Reason) -> None:
        """Gives back a frame that was claimed and not filled.

        ``reason`` is for those who wait for its chunk; UNSPECIFIED: it is durable without
        this frame.
        """
        with self._room:
            self._forget(frame)
        self.settle(frame, reason)

    def pin(self, chunk: ChunkId) -> Frame | None:
        """Finds a readable chunk, counts the use, and keeps its frame until ``unpin``."""
        with self._room:
            frame = self._frames.get(chunk)
            if frame is None or frame.state is FrameState.FILLING:
                return None
            self._policy.touch(chunk, frame.extent.byte_count)
            frame.pins += 1
            return frame

    def unpin(self, frames: Iterable[Frame]) -> None:
        """Takes back one pin of each frame."""
        with self._room:
            for frame in frames:
                frame.pins -= 1
                self._release_if_unused(frame)
            self._room.notify_all()

    def drop(self, chunk: ChunkId) -> None:
        """Makes the chunk unreadable here; its frame is reused when nobody needs it."""
        with self._room:
            frame = self._frames.get(chunk)
            if frame is not None:
                self._forget(frame)
                self._release_if_unused(frame)

    def _take_extent(self, class_bytes: int, may_evict: Callable[[ChunkId], bool]) -> Extent | None:
        """Allocates, evicting as much as that needs; None when all the rest is in use."""
        while True:
            allocation = self._allocator.allocate(class_bytes, 0)
            if allocation is not None:
                return allocation.extent
            victim = self._victim(class_bytes) or self._victim(None)
            if victim is None or not may_evict(victim.chunk):
                return None
            self._forget(victim)
            self._release_if_unused(victim)

    def _victim(self, class_bytes: int | None) -> Frame | None:
        for chunk in islice(self._policy.victims(class_bytes), VICTIMS_LOOKED_AT_MAX):
            frame = self._frames[chunk]
            if frame.state is FrameState.CLEAN and not frame.pins:
                return frame
        return None

    def _forget(self, frame: Frame) -> None:
        """Takes the name off a frame."""
        if not frame.is_dropped:
            frame.is_dropped = True
            del self._frames[frame.chunk]
            self._policy.remove(frame.chunk, frame.extent.byte_count)

    def _release_if_unused(self, frame: Frame) -> None:
        if frame.is_dropped and frame.state is FrameState.CLEAN and not frame.pins:
            self._allocator.free(frame.extent)
