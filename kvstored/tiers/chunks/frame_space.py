"""The memory of the DRAM tier: slabs of frames, and what each slab is used for.

Memory is reserved and populated at start and never grows. The tier's lock guards it.
"""

import numpy as np

from kvstored.format.geometry import Extent
from kvstored.io.memory import AlignedMemory
from kvstored.store.space.allocator import Allocator
from kvstored.tiers.policy.slab_uses import SlabUses


class FrameSpace:
    """Frames as extents of one memory. Invariant: ``uses`` knows each extent that is allocated.

    ``memory`` is all of it: uint8 [capacity_bytes], which extents are offsets into.
    """

    def __init__(self, *, capacity_bytes: int, slab_bytes: int) -> None:
        self.slab_count = capacity_bytes // slab_bytes
        self.capacity_bytes = self.slab_count * slab_bytes
        self._view = AlignedMemory(self.capacity_bytes).view
        self.memory = np.frombuffer(self._view, np.uint8)
        self._allocator = Allocator(
            slab_bytes=slab_bytes,
            slab_counts=[self.slab_count],
            data_offset=0,
            slab_header_bytes=0,
        )
        self.uses = SlabUses(self.slab_count)

    @property
    def class_bytes_max(self) -> int:
        """The largest chunk that fits a frame."""
        return self._allocator.geometry.class_bytes_max

    @property
    def used_bytes(self) -> int:
        """Bytes of all frames in use."""
        return self._allocator.used_bytes(0)

    def share_bytes(self, class_bytes: int) -> int:
        """What a frame of a class takes of its slab, which frames may not fill."""
        per_slab = self._allocator.geometry.extents_per_slab(class_bytes)
        return self._allocator.geometry.slab_bytes // max(per_slab, 1)

    @property
    def free_bytes(self) -> int:
        """What is not used, without what frames leave of their slabs. Looks at every slab."""
        counts = self.uses.frame_counts()
        return self.capacity_bytes - sum(self.share_bytes(size) * count for size, count in counts)

    def allocate(self, class_bytes: int) -> Extent | None:
        """Memory for a frame; None when nothing is free."""
        allocation = self._allocator.allocate(class_bytes, 0)
        if allocation is None:
            return None
        slab, place = self.locate(allocation.extent)
        self.uses.take(
            slab,
            place,
            class_bytes=class_bytes,
            place_count=self._allocator.geometry.extents_per_slab(class_bytes),
        )
        return allocation.extent

    def free(self, extent: Extent) -> None:
        """Takes back the memory of a frame."""
        self.uses.free(self.locate(extent)[0])
        self._allocator.free(extent)

    def view(self, extent: Extent) -> memoryview:
        """The bytes of a frame."""
        return self._view[extent.offset : extent.end]

    def locate(self, extent: Extent) -> tuple[int, int]:
        """The slab of a frame, and its place in it."""
        return self._allocator.geometry.locate(extent)

    def close_slab(self, slab: int) -> None:
        """Keeps new frames out of a slab until ``reopen_slab``."""
        self._allocator.close_slab(0, slab)

    def reopen_slab(self, slab: int) -> None:
        """Lets new frames come to a slab again."""
        self._allocator.reopen_slab(0, slab)
