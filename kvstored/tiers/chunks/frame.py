"""Frames: memory of chunks in the DRAM tier. Their fields are guarded by the tier's lock."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Self

from kvstored.format.geometry import ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason


class FrameState(Enum):
    """Life of a frame, in order."""

    FILLING = "filling"
    DIRTY = "dirty"
    CLEAN = "clean"


@dataclass(slots=True, kw_only=True, eq=False)
class Frame:
    """Memory of one chunk. Fields are guarded by the tier's lock.

    ``slab`` and ``place`` in it say where it lies; ``is_loose`` is what the tier's slabs know
    of whether it may go. ``durable`` resolves when the chunk is on the devices, or to why it
    is not.
    """

    chunk: ChunkId
    extent: Extent
    slab: int
    place: int
    view: memoryview
    layout_id: bytes
    geometry: ChunkGeometry
    state: FrameState = FrameState.FILLING
    pins: int = 0
    is_dropped: bool = False
    is_loose: bool = False
    durable: Future[Reason] = field(default_factory=Future)

    @property
    def may_go(self) -> bool:
        """Whether it may be evicted."""
        return self.state is FrameState.CLEAN and not self.pins and not self.is_dropped


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OpenFrame:
    """Memory of a chunk that is being filled and has no key yet. It belongs to one owner.

    It counts for its namespace.
    ``share_bytes`` is its part of a slab, which is more than the frame where frames do not
    fill their slab.
    """

    namespace_id: bytes
    extent: Extent
    share_bytes: int
    view: memoryview
    layout: StateLayout


@dataclass(frozen=True, slots=True)
class Claim:
    """Answer to a claim: a frame to fill, or the one that the key names already.

    ``is_filling``: somebody else is filling the frame, and may give it up. ``is_kept``: the frame
    is all that is left of a chunk and may not be given up now, so that nothing makes the chunk
    durable. ``refusal``: why it has no room on the devices, where the frame is all that is left.
    ``has_waited``: it is new after a wait for another put of the key. ``room``: the extent that it
    got before the only copy of its chunk was given up.
    """

    frame: Frame
    is_new: bool
    is_filling: bool = False
    is_kept: bool = False
    refusal: Reason | None = None
    has_waited: bool = False
    room: Extent | None = None

    @classmethod
    def existing(cls, frame: Frame) -> Self:
        """The answer to a claim whose key names a frame; under the tier's lock."""
        return cls(frame, is_new=False, is_filling=frame.state is FrameState.FILLING)

    @property
    def durable(self) -> Future[Reason]:
        """Resolves when the chunk is on the devices, or to why it is not."""
        if not self.is_kept:
            return self.frame.durable
        outcome: Future[Reason] = Future()
        outcome.set_result(Reason.DEADLINE)
        return outcome
