"""The DRAM tier: frames that hold chunks as they lie on the device.

Invariants: a frame is given away again only when it is not dirty, nobody has it pinned, and its
key no longer names it; a key names at most one frame.

What goes for others, ``frame_victims`` says.
"""

import threading
import time
from collections.abc import Callable, Iterable

from kvstored.format.geometry import ChunkGeometry, Extent
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.frame import Claim, Frame, FrameState
from kvstored.tiers.chunks.frame_ages import FrameAges
from kvstored.tiers.chunks.frame_hints import FrameHints
from kvstored.tiers.chunks.frame_space import FrameSpace
from kvstored.tiers.chunks.frame_victims import FrameVictims
from kvstored.tiers.chunks.open_frames import OpenFrames
from kvstored.tiers.policy.lifetimes import Lifetimes
from kvstored.tiers.policy.shares import NOBODY, TierShares
from kvstored.turnstile import PART_ITEMS, TURNSTILE
from kvstored_contract.reasons import Reason

LOOK_INTERVAL_S = 0.1
"""How often one that waits for room looks whether anybody still wants it to."""
LIMIT_PARTS_MAX = 4
"""Times that a namespace whose limit was lowered gives up frames for one that comes."""


def _always(_: ChunkId) -> bool:
    return True


def _never(_: ChunkId) -> bool:
    return False


def _nobody_hears(_: ChunkId) -> None:
    pass


class DramTier:
    """Which frames of ``space`` keys name, and what goes for others. Thread-safe.

    Those of ``open_frames`` have no key yet, and do not go. What waiting requests need, ``hints``
    tells; what was not used for too long goes by ``ages``.

    ``is_kept`` says of a chunk, with the tier's lock held, that it must not be evicted now; it
    must not block. ``on_left`` hears, with that lock held, of every chunk that could be read from
    here and cannot any more.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int,
        slab_bytes: int,
        shares: TierShares[ChunkId],
        lifetimes: Lifetimes | None = None,
        is_kept: Callable[[ChunkId], bool] = _never,
        on_left: Callable[[ChunkId], None] = _nobody_hears,
    ) -> None:
        self._room = threading.Condition()
        self.space = FrameSpace(capacity_bytes=capacity_bytes, slab_bytes=slab_bytes)
        self.shares = shares
        self.open_frames = OpenFrames(
            self.space,
            room=self._room,
            use=shares.use,
            take=self._take_extent,
            name=self._claim_extent,
        )
        self.hints = FrameHints(room=self._room, policy=shares.policy, evict=self._evict_first)
        self.ages = FrameAges(
            lifetimes or Lifetimes(), room=self._room, evict=self._evict_if_possible
        )
        self._policy = shares.policy
        self._is_kept = is_kept
        self._on_left = on_left
        self._frames: dict[ChunkId, Frame] = {}
        self._slab_frames: list[dict[ChunkId, Frame]] = [{} for _ in range(self.space.slab_count)]
        """The frames of each slab that a key names."""
        self._victims = FrameVictims(
            space=self.space,
            shares=shares,
            frames=self._frames,
            slab_frames=self._slab_frames,
            is_kept=is_kept,
        )
        self._draining: int | None = None
        self._drained_for = NOBODY

    @property
    def chunk_count(self) -> int:
        """Chunks that a key names."""
        return len(self._frames)

    def contains(self, chunk: ChunkId) -> bool:
        """Whether the chunk could be read from here now."""
        frame = self._frames.get(chunk)
        return frame is not None and frame.state is not FrameState.FILLING

    def which_are_here(self, chunks: Iterable[ChunkId]) -> set[ChunkId]:
        """Those that could be read from here now; an eviction has ended or has not begun."""
        here: set[ChunkId] = set()
        for part in TURNSTILE.parts(list(chunks)):
            with self._room:
                here.update(filter(self.contains, part))
        return here

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
        this one, and every chunk that goes must.
        """
        with self._room:
            drained: int | None = None
            try:
                while True:
                    if (existing := self._frames.get(chunk)) is not None:
                        return Claim.existing(existing)
                    if drained is not None and self.space.uses.is_empty(drained):
                        self._end_draining(drained)
                        drained = None
                    extent = self._take_extent(chunk.namespace_id, class_bytes, may_evict)
                    if extent is not None:
                        return self._claim_extent(chunk, extent, layout_id, geometry)
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0 or not is_wanted():
                        return None
                    if drained is None and self._draining is None:
                        drained = self._begin_draining(chunk.namespace_id, class_bytes)
                    self._room.wait(min(remaining_s, LOOK_INTERVAL_S))
            finally:
                self._end_draining(drained)

    def wait_filled(self, frame: Frame, deadline: float, is_wanted: Callable[[], bool]) -> bool:
        """Waits until a frame that somebody fills is published or given up; False when neither.

        ``is_wanted`` is asked now and then whether to wait on until ``deadline``.
        """
        with self._room:
            while frame.state is FrameState.FILLING:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0 or not is_wanted():
                    return False
                self._room.wait(min(remaining_s, LOOK_INTERVAL_S))
        return True

    def publish(self, frame: Frame, state: FrameState) -> None:
        """Makes a filled frame readable, DIRTY or CLEAN."""
        with self._room:
            frame.state = state
            if frame.is_dropped:
                self._on_left(frame.chunk)
            else:
                self._policy.insert(frame.chunk, frame.extent.byte_count)
                self.ages.use(frame.chunk)
            self._note(frame)
            self._room.notify_all()

    def settle(self, frame: Frame, reason: Reason) -> None:
        """Hears that a dirty frame's chunk is durable; without success the frame goes."""
        with self._room:
            frame.state = FrameState.CLEAN
            if reason is not Reason.UNSPECIFIED:
                self._forget(frame)
            self._note(frame)
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
            self._policy.touch([chunk])
            self.ages.use(chunk)
            self.space.uses.touch(frame.slab, frame.place)
            frame.pins += 1
            self._note(frame)
            return frame

    def unpin(self, frames: Iterable[Frame]) -> None:
        """Takes back one pin of each frame."""
        pinned = list(frames)
        for start in range(0, len(pinned), PART_ITEMS):
            with self._room:
                for frame in pinned[start : start + PART_ITEMS]:
                    frame.pins -= 1
                    self._note(frame)
                self._room.notify_all()

    def drop(self, chunk: ChunkId) -> None:
        """Makes the chunk unreadable here; its frame is reused when nobody needs it."""
        with self._room:
            if (frame := self._frames.get(chunk)) is not None:
                self._forget(frame)
                self._note(frame)

    def drop_unless_kept(self, frame: Frame) -> bool:
        """Makes sure that the key does not name this frame; False where the chunk must stay."""
        with self._room:
            if self._frames.get(frame.chunk) is not frame:
                return True
            if not (is_kept := self._is_kept(frame.chunk)):
                self.drop(frame.chunk)
            return not is_kept

    def _take_extent(
        self,
        namespace_id: bytes,
        class_bytes: int,
        may_evict: Callable[[ChunkId], bool] = _always,
    ) -> Extent | None:
        """Allocates, evicting what that needs; None when all the rest is in use."""
        if class_bytes > self.space.class_bytes_max:
            # A layout of before the slabs were made smaller: all slabs would be emptied in vain.
            return None
        for _ in range(LIMIT_PARTS_MAX):
            own = self._victims.above_limit(namespace_id, class_bytes, may_evict)
            if own is None:
                return None
            self._evict(own)
            if not self.shares.use.excess_bytes(namespace_id, class_bytes):
                break
        else:
            # The limit was lowered by more than goes at once: the next try goes on.
            return None
        extent = self.space.allocate(class_bytes)
        if extent is not None:
            return extent
        for victims in self._victims.ways_to_make_room(namespace_id, class_bytes):
            if all(may_evict(frame.chunk) for frame in victims):
                self._evict(victims)
                return self.space.allocate(class_bytes)
        return None

    def _evict(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self._forget(frame)
            self._note(frame)

    def _evict_first(self) -> int:
        """Makes the first chunk of all go that nobody waits for; its bytes, 0 without one."""
        frame = self._victims.first(NOBODY, None)
        if frame is None or self._policy.is_queued(frame.chunk):
            return 0
        self._evict([frame])
        return frame.extent.byte_count

    def _evict_if_possible(self, chunk: ChunkId) -> bool:
        """Makes a chunk go; False where it is in use, or not there."""
        frame = self._frames.get(chunk)
        if frame is None or not frame.may_go or self._is_kept(chunk):
            return False
        self._evict([frame])
        return True

    def _begin_draining(self, namespace_id: bytes, class_bytes: int) -> int | None:
        """Begins to drain a slab for a class that waits, unless that has frames to wait for."""
        is_at_limit = self.shares.use.excess_bytes(namespace_id, class_bytes) > 0
        if is_at_limit or self._victims.has_any(namespace_id, class_bytes):
            return None
        slab = self._draining = self._victims.slab_to_drain(namespace_id, class_bytes)
        self._drained_for = namespace_id
        if slab is not None:
            self.space.close_slab(slab)
            for frame in list(self._slab_frames[slab].values()):
                self._note(frame)
        return slab

    def _end_draining(self, slab: int | None) -> None:
        if slab is not None:
            self._draining = None
            self.space.reopen_slab(slab)
            self._room.notify_all()

    def _claim_extent(
        self, chunk: ChunkId, extent: Extent, layout_id: bytes, geometry: ChunkGeometry
    ) -> Claim:
        """A frame to fill that the chunk's key names from now on; or the one that it names."""
        if (existing := self._frames.get(chunk)) is not None:
            return Claim.existing(existing)
        self.shares.use.add(chunk.namespace_id, extent.byte_count)
        slab, place = self.space.locate(extent)
        frame = Frame(
            chunk=chunk,
            extent=extent,
            slab=slab,
            place=place,
            view=self.space.view(extent),
            layout_id=layout_id,
            geometry=geometry,
        )
        self._frames[chunk] = self._slab_frames[slab][chunk] = frame
        return Claim(frame, is_new=True)

    def _forget(self, frame: Frame) -> None:
        """Takes the name off a frame."""
        if not frame.is_dropped:
            frame.is_dropped = True
            del self._frames[frame.chunk]
            del self._slab_frames[frame.slab][frame.chunk]
            self._policy.remove(frame.chunk)
            self.ages.remove(frame.chunk)
            if frame.state is not FrameState.FILLING:
                self._on_left(frame.chunk)

    def _note(self, frame: Frame) -> None:
        """Follows every change of a frame: whether it may go, and whether it is free now."""
        if frame.slab == self._draining and self._victims.may_go(frame, self._drained_for):
            self._forget(frame)
        if frame.may_go != frame.is_loose:
            frame.is_loose = frame.may_go
            (self.space.uses.loosen if frame.is_loose else self.space.uses.hold)(frame.slab)
        if frame.is_dropped and frame.state is FrameState.CLEAN and not frame.pins:
            self.space.free(frame.extent)
            self.shares.use.add(frame.chunk.namespace_id, -frame.extent.byte_count)
