"""Frames of chunks that are being filled token by token, and have no key before they are full."""

import threading
from collections import Counter
from collections.abc import Callable

from kvstored.format.geometry import ChunkGeometry, Extent, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.frame import Claim, OpenFrame
from kvstored.tiers.chunks.frame_space import FrameSpace
from kvstored.tiers.policy.shares import TierUse
from kvstored_contract.layout import StateLayout

OPEN_SHARE_MAX = 0.5
"""Part of the tier that the frames of open chunks may take: they cannot be evicted."""

Name = Callable[[ChunkId, Extent, bytes, ChunkGeometry], Claim]
"""Gives memory a key, with its layout's id, under the tier's lock; or finds the key's frame."""


Helps = Callable[[bytes], bool]
"""Whether a frame of a namespace that is closed makes room for who wants one."""


def _nothing(_helps: Helps) -> bool:
    return False


class OpenFrames:
    """Each frame belongs to one owner, who closes it or has a chunk adopt it. Thread-safe.

    Invariant: together they take at most OPEN_SHARE_MAX of the tier, and those of a namespace
    leave all others as large a part of their guaranteed shares. ``room`` is the tier's lock,
    on which those wait who want a frame; ``take`` finds memory for a namespace and a size class,
    by evictions where that is needed. ``use`` counts it for that namespace.
    """

    def __init__(
        self,
        space: FrameSpace,
        *,
        room: threading.Condition,
        use: TierUse,
        take: Callable[[bytes, int], Extent | None],
        name: Name,
    ) -> None:
        self._space = space
        self._room = room
        self._use = use
        self._take = take
        self._name = name
        self.let_go: Callable[[Helps], bool] = _nothing
        """Has owners close frames whose bytes are stored as well; False when there are none.

        Only those of namespaces that help. Called without the tier's lock, by those who find no
        room.
        """
        self.byte_count = 0
        """Bytes of all of them, with what they strand of their slabs."""
        self._account_bytes: Counter[bytes] = Counter()
        """The same by account."""

    def open(self, layout: StateLayout, namespace_id: bytes) -> OpenFrame | None:
        """Reserves a frame for a chunk of a namespace; None when there is no room now."""
        opened = self._opened(layout, namespace_id)
        while opened is None and self.let_go(self._helps(layout, namespace_id)):
            opened = self._opened(layout, namespace_id)
        return opened

    def _opened(self, layout: StateLayout, namespace_id: bytes) -> OpenFrame | None:
        size = class_bytes(layout)
        share_bytes = self._space.share_bytes(size)
        with self._room:
            if self._is_bound(namespace_id, share_bytes):
                return None
            if (extent := self._take(namespace_id, size)) is None:
                return None
            self._count(namespace_id, share_bytes)
            self._use.add(namespace_id, extent.byte_count)
            self._space.uses.begin_open(self._space.locate(extent)[0])
        view = self._space.view(extent)
        return OpenFrame(
            namespace_id=namespace_id,
            extent=extent,
            share_bytes=share_bytes,
            view=view,
            layout=layout,
        )

    def helps(self, namespace_id: bytes, byte_count: int) -> Helps:
        """Whose frames make room for so many bytes of a namespace, as far as its own limit goes.

        An account that has as much as it may have is helped by nobody else.
        """
        taker = self._use.account(namespace_id)
        with self._room:
            is_at_limit = self._use.excess_bytes(namespace_id, byte_count) > 0
        return lambda giver: not is_at_limit or self._use.account(giver) == taker

    def close(self, opened: OpenFrame) -> None:
        """Gives back a frame."""
        with self._room:
            self._end(opened)
            self._space.free(opened.extent)
            self._room.notify_all()

    def adopt(self, opened: OpenFrame, chunk: ChunkId) -> Claim:
        """Gives the complete chunk in a frame its key.

        The claimed frame is that memory, to be published or abandoned. When the key
        already names a frame, that one is returned and the open frame stays the owner's.
        """
        layout = opened.layout
        geometry = ChunkGeometry.of(layout, layout.chunk_tokens)
        with self._room:
            claim = self._name(chunk, opened.extent, layout.layout_id, geometry)
            if claim.is_new:
                self._end(opened)
            return claim

    def _is_bound(self, namespace_id: bytes, share_bytes: int) -> bool:
        """Whether so much more would exceed what open frames may have."""
        most_bytes = OPEN_SHARE_MAX * self._space.capacity_bytes
        return self.byte_count + share_bytes > most_bytes - self._kept_bytes(namespace_id)

    def _helps(self, layout: StateLayout, namespace_id: bytes) -> Helps:
        """Of an account that has no more than what is kept for it a frame makes no room."""
        size = class_bytes(layout)
        share_bytes = self._space.share_bytes(size)
        with self._room:
            is_bound = self._is_bound(namespace_id, share_bytes)
        taker = self._use.account(namespace_id)
        helps_within_limit = self.helps(namespace_id, size)

        def helps(giver: bytes) -> bool:
            if not helps_within_limit(giver):
                return False
            account = self._use.account(giver)
            kept_bytes = OPEN_SHARE_MAX * self._use.quotas.of(account).guaranteed_bytes
            return not is_bound or account == taker or self._account_bytes[account] > kept_bytes

        return helps

    def _kept_bytes(self, namespace_id: bytes) -> float:
        """What others have not taken of their guaranteed shares, as far as it may be open."""
        taker = self._use.account(namespace_id)
        return sum(
            max(0.0, OPEN_SHARE_MAX * quota.guaranteed_bytes - self._account_bytes[account])
            for account, quota in self._use.quotas.quotas.items()
            if account != taker
        )

    def _count(self, namespace_id: bytes, byte_count: int) -> None:
        self.byte_count += byte_count
        self._account_bytes[self._use.account(namespace_id)] += byte_count

    def _end(self, opened: OpenFrame) -> None:
        self._count(opened.namespace_id, -opened.share_bytes)
        self._use.add(opened.namespace_id, -opened.extent.byte_count)
        self._space.uses.end_open(self._space.locate(opened.extent)[0])
