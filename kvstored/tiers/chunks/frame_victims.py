"""Which frames of the DRAM tier go for others. The tier's lock guards all of it.

Who makes room for a frame of a size class that finds none: one slab of another class, without
chunks that somebody waits for, is emptied if its late use (``SlabUses``) is before the last use
of the class's own frame that is to go, the slab with the oldest late use first; else that one
frame goes. So at most one slab's worth is evicted for a frame, nothing is evicted in vain, and a
class takes over a slab only where nearly all that goes is older than everything it has. A class
without any frame that may go, while every slab of others is in use somewhere, has one slab
*drained* for it as long as it waits: nothing new comes there, and each frame goes as soon as it
may. That is a slab without frames that may be kept for long, those of open chunks and of leased
ones, while there is one.

A namespace at its limit gives up chunks of its own first, and whatever goes for a namespace leaves
the guaranteed shares of all others alone (``policy/shares``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.frame import Frame
from kvstored.tiers.chunks.frame_space import FrameSpace
from kvstored.tiers.policy.shares import TierShares

VICTIMS_LOOKED_AT_MAX = 256
"""Pinned or dirty frames of a class that are passed over before another class is looked at."""
SLABS_TRIED_MAX = 8
"""Slabs that could be emptied: of so many it is asked whether their chunks may go."""


class FrameVictims:
    """Chooses among ``frames``, by key, which ``slab_frames`` has by their slabs. Changes nothing.

    ``is_kept`` says of a chunk that it must not be evicted now.
    """

    def __init__(
        self,
        *,
        space: FrameSpace,
        shares: TierShares[ChunkId],
        frames: Mapping[ChunkId, Frame],
        slab_frames: Sequence[Mapping[ChunkId, Frame]],
        is_kept: Callable[[ChunkId], bool],
    ) -> None:
        self._uses = space.uses
        self._shares = shares
        self._frames = frames
        self._slab_frames = slab_frames
        self._is_kept = is_kept

    def above_limit(
        self, namespace_id: bytes, class_bytes: int, may_evict: Callable[[ChunkId], bool]
    ) -> list[Frame] | None:
        """What a namespace has to give up before it gets a frame; None when that cannot go.

        Frames of the same class first: then the new one has their memory. After its limit was
        lowered by much it is a part of that, as many frames as are looked at at once.
        """
        use = self._shares.use
        excess_bytes = use.excess_bytes(namespace_id, class_bytes)
        going: dict[ChunkId, Frame] = {}
        if excess_bytes == 0:
            return []
        account = use.account(namespace_id)
        limit_bytes = use.quotas.of(account).limit_bytes or 0
        for group in (class_bytes, None):
            for order in self._shares.orders(namespace_id, group, class_bytes):
                for frame in self._loose(order):
                    if frame.chunk not in going and may_evict(frame.chunk):
                        going[frame.chunk] = frame
                        excess_bytes -= frame.extent.byte_count
                    if excess_bytes <= 0:
                        return list(going.values())
        is_above = use.used_bytes(account) > limit_bytes >= class_bytes
        # Else all that may go is not enough.
        is_part = is_above and self._is_cut(namespace_id, class_bytes)
        return list(going.values()) if going and is_part else None

    def ways_to_make_room(self, namespace_id: bytes, class_bytes: int) -> Iterator[list[Frame]]:
        """What could be evicted for a frame of a class, the best first; each is enough alone."""
        own = self.first(namespace_id, class_bytes)
        before = None if own is None else self._uses.last_use(own.slab, own.place)
        slabs = self._uses.to_empty(class_bytes, before=before)
        wanted: list[list[Frame]] = []
        for slab in islice(slabs, SLABS_TRIED_MAX):
            frames = self._slab_frames[slab]
            if any(map(self._is_kept, frames)) or not self._may_all_go(slab, namespace_id):
                continue
            if any(map(self._shares.policy.is_queued, frames)):
                wanted.append(list(frames.values()))
            else:
                yield list(frames.values())
        if own is not None:
            yield [own]
        else:
            yield from wanted

    def first(self, namespace_id: bytes, class_bytes: int | None) -> Frame | None:
        """The first chunk of a class, or of all, that may go for a namespace."""
        orders = self._shares.orders(namespace_id, class_bytes, class_bytes or 0)
        loose = (next(self._loose(order), None) for order in orders)
        return next((frame for frame in loose if frame is not None), None)

    def has_any(self, namespace_id: bytes, class_bytes: int) -> bool:
        """Whether there are frames of a class that go for a namespace, now or later."""
        orders = self._shares.orders(namespace_id, class_bytes, class_bytes)
        return any(next(order, None) is not None for order in orders)

    def slab_to_drain(self, namespace_id: bytes, class_bytes: int) -> int | None:
        """The slab that will be empty first; one that leases keep only if all they looked at do."""
        first = None
        for slab in islice(self._uses.nearly_loose(class_bytes), SLABS_TRIED_MAX):
            if not self._may_all_go(slab, namespace_id):
                continue
            if not any(map(self._is_kept, self._slab_frames[slab])):
                return slab
            first = slab if first is None else first
        return first

    def may_go(self, frame: Frame, namespace_id: bytes) -> bool:
        """Whether a frame may go now, for a namespace."""
        if not frame.may_go or self._is_kept(frame.chunk):
            return False
        size = (frame.chunk.namespace_id, frame.extent.byte_count)
        return all(self._shares.use.may_go(namespace_id, [size]))

    def _may_all_go(self, slab: int, namespace_id: bytes) -> bool:
        """Whether nobody's guaranteed share keeps a chunk of a slab from going for a namespace."""
        if not self._shares.use.is_divided:
            return True
        frames = self._slab_frames[slab].values()
        sizes = [(frame.chunk.namespace_id, frame.extent.byte_count) for frame in frames]
        return all(self._shares.use.may_go(namespace_id, sizes))

    def _is_cut(self, namespace_id: bytes, class_bytes: int) -> bool:
        """Whether there are more frames that go for a namespace than are looked at."""
        orders = self._shares.orders(namespace_id, None, class_bytes)
        return any(next(islice(order, VICTIMS_LOOKED_AT_MAX, None), None) for order in orders)

    def _loose(self, order: Iterable[ChunkId]) -> Iterator[Frame]:
        """Those of the first of some chunks that may go."""
        for chunk in islice(order, VICTIMS_LOOKED_AT_MAX):
            frame = self._frames[chunk]
            if frame.may_go and not self._is_kept(chunk):
                yield frame
