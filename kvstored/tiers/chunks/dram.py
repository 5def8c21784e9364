"""The DRAM tier: frames that hold chunks as they lie on the device.

Invariants: a frame is given away again only when it is not dirty, nobody has it pinned, and its
key no longer names it; a key names at most one frame.

Who makes room for a frame of a size class that finds none: one slab of another class, without
chunks that somebody waits for, is emptied if its late use (``SlabUses``) is before the last use
of the class's own frame that is to go, the slab with the oldest late use first; else that one
frame goes. So at most one slab's worth is evicted for a frame, nothing is evicted in vain, and a
class takes over a slab only where nearly all that goes is older than everything it has. A class
without any frame that may go, while every slab of others is in use somewhere, has one slab
*drained* for it as long as it waits: nothing new comes there, and each frame goes as soon as it
may. That is a slab without frames that may be kept for long, those of open chunks and of leased
ones, while there is one.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from kvstored.format.extent import Extent
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.frame import Claim, Frame, FrameState
from kvstored.tiers.chunks.frame_hints import FrameHints
from kvstored.tiers.chunks.frame_space import FrameSpace
from kvstored.tiers.chunks.open_frames import OpenFrames
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored_contract.reasons import Reason

VICTIMS_LOOKED_AT_MAX = 256
"""Pinned or dirty frames of a class that are passed over before another class is looked at."""
SLABS_TRIED_MAX = 8
"""Slabs that could be emptied: of so many it is asked whether their chunks may go."""
LOOK_INTERVAL_S = 0.1
"""How often one that waits for room looks whether anybody still wants it to."""


def _always(_: ChunkId) -> bool:
    return True


def _never(_: ChunkId) -> bool:
    return False


def _nobody_hears(_: ChunkId) -> None:
    pass


class DramTier:
    """Which frames of ``space`` keys name, and what goes for others. Thread-safe.

    Those of ``open_frames`` have no key yet, and do not go. What waiting requests need, ``hints``
    tells.

    ``is_kept`` says of a chunk, with the tier's lock held, that it must not be evicted now; it
    must not block. ``on_left`` hears, with that lock held, of every chunk that could be read from
    here and cannot any more.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int,
        slab_bytes: int,
        policy: EvictionPolicy[ChunkId],
        is_kept: Callable[[ChunkId], bool] = _never,
        on_left: Callable[[ChunkId], None] = _nobody_hears,
    ) -> None:
        self._room = threading.Condition()
        self.space = FrameSpace(capacity_bytes=capacity_bytes, slab_bytes=slab_bytes)
        self.open_frames = OpenFrames(
            self.space, room=self._room, take=self._take_extent, name=self._claim_extent
        )
        self.hints = FrameHints(room=self._room, policy=policy, evict=self._evict_first)
        self._policy = policy
        self._is_kept = is_kept
        self._on_left = on_left
        self._frames: dict[ChunkId, Frame] = {}
        self._slab_frames: list[dict[ChunkId, Frame]] = [{} for _ in range(self.space.slab_count)]
        """The frames of each slab that a key names."""
        self._draining: int | None = None

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
        with self._room:
            return set(filter(self.contains, chunks))

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
                    if (extent := self._take_extent(class_bytes, may_evict)) is not None:
                        return self._claim_extent(chunk, extent, layout_id, geometry)
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0 or not is_wanted():
                        return None
                    if drained is None and self._draining is None:
                        drained = self._begin_draining(class_bytes)
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
            self.space.uses.touch(frame.slab, frame.place)
            frame.pins += 1
            self._note(frame)
            return frame

    def unpin(self, frames: Iterable[Frame]) -> None:
        """Takes back one pin of each frame."""
        with self._room:
            for frame in frames:
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
        self, class_bytes: int, may_evict: Callable[[ChunkId], bool] = _always
    ) -> Extent | None:
        """Allocates, evicting what that needs; None when all the rest is in use."""
        extent = self.space.allocate(class_bytes)
        if extent is not None:
            return extent
        for victims in self._ways_to_make_room(class_bytes):
            if all(may_evict(frame.chunk) for frame in victims):
                for frame in victims:
                    self._forget(frame)
                    self._note(frame)
                return self.space.allocate(class_bytes)
        return None

    def _ways_to_make_room(self, class_bytes: int) -> Iterator[list[Frame]]:
        """What could be evicted for a frame of a class, the best first; each is enough alone."""
        own = self._first_to_go(class_bytes)
        before = None if own is None else self.space.uses.last_use(own.slab, own.place)
        slabs = self.space.uses.to_empty(class_bytes, before=before)
        wanted: list[list[Frame]] = []
        for slab in islice(slabs, SLABS_TRIED_MAX):
            frames = self._slab_frames[slab]
            if any(map(self._is_kept, frames)):
                continue
            if any(map(self._policy.is_queued, frames)):
                wanted.append(list(frames.values()))
            else:
                yield list(frames.values())
        if own is not None:
            yield [own]
        else:
            yield from wanted

    def _evict_first(self) -> int:
        """Makes the first chunk of all go that nobody waits for; its bytes, 0 without one."""
        frame = self._first_to_go(None)
        if frame is None or self._policy.is_queued(frame.chunk):
            return 0
        self._forget(frame)
        self._note(frame)
        return frame.extent.byte_count

    def _first_to_go(self, class_bytes: int | None) -> Frame | None:
        for chunk in islice(self._policy.victims(class_bytes), VICTIMS_LOOKED_AT_MAX):
            frame = self._frames[chunk]
            if frame.may_go and not self._is_kept(chunk):
                return frame
        return None

    def _begin_draining(self, class_bytes: int) -> int | None:
        """Begins to drain a slab for a class that waits, unless that has frames to wait for."""
        if next(iter(self._policy.victims(class_bytes)), None) is not None:
            return None
        slab = self._draining = self._slab_to_drain(class_bytes)
        if slab is not None:
            self.space.close_slab(slab)
            for frame in list(self._slab_frames[slab].values()):
                self._note(frame)
        return slab

    def _slab_to_drain(self, class_bytes: int) -> int | None:
        """The slab that will be empty first; one that leases keep only if all they looked at do."""
        nearly_loose = self.space.uses.nearly_loose(class_bytes)
        for slab in islice(nearly_loose, SLABS_TRIED_MAX):
            if not any(map(self._is_kept, self._slab_frames[slab])):
                return slab
        return next(iter(nearly_loose), None)

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
            if frame.state is not FrameState.FILLING:
                self._on_left(frame.chunk)

    def _note(self, frame: Frame) -> None:
        """Follows every change of a frame: whether it may go, and whether it is free now."""
        if frame.may_go and frame.slab == self._draining and not self._is_kept(frame.chunk):
            self._forget(frame)
        if frame.may_go != frame.is_loose:
            frame.is_loose = frame.may_go
            (self.space.uses.loosen if frame.is_loose else self.space.uses.hold)(frame.slab)
        if frame.is_dropped and frame.state is FrameState.CLEAN and not frame.pins:
            self.space.free(frame.extent)
