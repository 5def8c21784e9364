"""Free space: slabs of one size class each, cut into equal extents.

Pure bookkeeping of integers; the owner serialises the calls. Invariants:

* An extent is handed out at most once until it is freed.
* A slab serves one size class while it has a used extent; the last ``free`` returns
  it, and then it can serve another class. Nothing is ever moved to make room.
* The lowest slab with room is filled first, so that high slabs can become empty.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from kvstored.format.geometry import Extent
from kvstored.store.space.slab_geometry import SlabGeometry


@dataclass(frozen=True, slots=True)
class Allocation:
    """An extent, and the index of its slab when the slab's header must be written first."""

    extent: Extent
    opened_slab: int | None


@dataclass(slots=True)
class _Slab:
    """State of one slab. Bit i of ``free_mask`` is set while extent i is free."""

    class_bytes: int = 0
    extent_count: int = 0
    used_count: int = 0
    free_mask: int = 0
    is_closed: bool = False


class _SlabHeap:
    """Slab indices, lowest first, each at most once; entries may have become invalid."""

    __slots__ = ("_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._members: set[int] = set()

    def push(self, slab_index: int) -> None:
        if slab_index not in self._members:
            self._members.add(slab_index)
            heappush(self._heap, slab_index)

    def lowest(self, is_valid: Callable[[int], bool]) -> int | None:
        """The lowest valid entry; drops the invalid ones below it."""
        while self._heap:
            if is_valid(self._heap[0]):
                return self._heap[0]
            self._members.remove(heappop(self._heap))
        return None


@dataclass(slots=True)
class _DeviceSlabs:
    """Slabs of one device, and where to look for empty and for partly used ones."""

    slabs: list[_Slab]
    empty: _SlabHeap = field(default_factory=_SlabHeap)
    partial: dict[int, _SlabHeap] = field(default_factory=dict)
    used_bytes: int = 0


class Allocator:
    """Hands out extents of fixed size classes from fixed-size slabs on several devices."""

    def __init__(
        self,
        *,
        slab_bytes: int,
        slab_counts: Sequence[int],
        data_offset: int,
        slab_header_bytes: int,
    ) -> None:
        self.geometry = SlabGeometry(slab_bytes, tuple(slab_counts), data_offset, slab_header_bytes)
        self._devices = [_DeviceSlabs([_Slab() for _ in range(count)]) for count in slab_counts]
        for device in self._devices:
            for slab_index in range(len(device.slabs)):
                device.empty.push(slab_index)

    def capacity_bytes(self, device_index: int) -> int:
        """Bytes of all slabs of a device."""
        return len(self._devices[device_index].slabs) * self.geometry.slab_bytes

    def used_bytes(self, device_index: int) -> int:
        """Bytes of all extents in use on a device."""
        return self._devices[device_index].used_bytes

    def used_count(self, device_index: int, slab_index: int) -> int:
        """Extents in use in one slab."""
        return self._devices[device_index].slabs[slab_index].used_count

    def allocate(
        self, class_bytes: int, device_index: int, *, excluded: Collection[int] = ()
    ) -> Allocation | None:
        """Takes an extent, on ``device_index`` if it has room, else on the next that has.

        ``excluded`` devices are not used. Returns None when no device has room.
        """
        if self.geometry.extents_per_slab(class_bytes) == 0:
            return None
        for step in range(len(self._devices)):
            candidate = (device_index + step) % len(self._devices)
            if candidate in excluded:
                continue
            allocation = self._allocate_on(candidate, class_bytes)
            if allocation is not None:
                return allocation
        return None

    def free(self, extent: Extent) -> None:
        """Returns an extent. Raises ValueError when it was not in use."""
        device = self._devices[extent.device_index]
        slab_index, position = self.geometry.locate(extent)
        slab = device.slabs[slab_index]
        bit = 1 << position
        if slab.class_bytes != extent.byte_count or slab.free_mask & bit:
            raise ValueError(f"{extent} is not in use")
        device.partial[slab.class_bytes].push(slab_index)
        slab.free_mask |= bit
        slab.used_count -= 1
        device.used_bytes -= extent.byte_count
        if slab.used_count == 0:
            slab.class_bytes = 0
            device.empty.push(slab_index)

    def close_slab(self, device_index: int, slab_index: int) -> None:
        """Hands out nothing of a slab until ``reopen_slab``; what is in use there stays so."""
        self._devices[device_index].slabs[slab_index].is_closed = True

    def reopen_slab(self, device_index: int, slab_index: int) -> None:
        """Takes back ``close_slab``."""
        device = self._devices[device_index]
        slab = device.slabs[slab_index]
        slab.is_closed = False
        if slab.class_bytes == 0:
            device.empty.push(slab_index)
        else:
            device.partial[slab.class_bytes].push(slab_index)

    def occupy(self, extent: Extent) -> None:
        """Marks an extent as used, as recovery finds it in the index.

        Raises ValueError when it overlaps another one or does not fit the slabs.
        """
        device = self._devices[extent.device_index]
        slab_index, position = self.geometry.locate(extent)
        slab = device.slabs[slab_index]
        if slab.class_bytes == 0:
            self._open(device, slab_index, extent.byte_count)
        bit = 1 << position
        if slab.class_bytes != extent.byte_count or not slab.free_mask & bit:
            raise ValueError(f"{extent} overlaps another extent")
        self._take(device, slab, bit)

    def occupy_slab(
        self, device_index: int, slab_index: int, class_bytes: int, positions: NDArray[np.int64]
    ) -> None:
        """Marks extents of an empty slab as used, by their positions; as ``occupy`` for each.

        ``positions`` has shape [n], n > 0, and no position twice.
        """
        device = self._devices[device_index]
        slab = device.slabs[slab_index]
        assert slab.class_bytes == 0
        self._open(device, slab_index, class_bytes)
        is_used = np.zeros(slab.extent_count, np.bool_)
        is_used[positions] = True
        used_mask = int.from_bytes(np.packbits(is_used, bitorder="little").tobytes(), "little")
        slab.free_mask ^= used_mask
        slab.used_count = len(positions)
        device.used_bytes += len(positions) * class_bytes

    def _open(self, device: _DeviceSlabs, slab_index: int, class_bytes: int) -> None:
        slab = device.slabs[slab_index]
        slab.class_bytes = class_bytes
        slab.extent_count = self.geometry.extents_per_slab(class_bytes)
        slab.free_mask = (1 << slab.extent_count) - 1
        device.partial.setdefault(class_bytes, _SlabHeap()).push(slab_index)

    @staticmethod
    def _take(device: _DeviceSlabs, slab: _Slab, bit: int) -> None:
        slab.free_mask &= ~bit
        slab.used_count += 1
        device.used_bytes += slab.class_bytes

    @staticmethod
    def _partial_slab(device: _DeviceSlabs, class_bytes: int) -> int | None:
        def has_room(slab_index: int) -> bool:
            slab = device.slabs[slab_index]
            is_own = slab.class_bytes == class_bytes and not slab.is_closed
            return is_own and slab.free_mask != 0

        heap = device.partial.get(class_bytes)
        return None if heap is None else heap.lowest(has_room)

    @staticmethod
    def _empty_slab(device: _DeviceSlabs) -> int | None:
        def is_empty(slab_index: int) -> bool:
            slab = device.slabs[slab_index]
            return slab.class_bytes == 0 and not slab.is_closed

        return device.empty.lowest(is_empty)

    def _allocate_on(self, device_index: int, class_bytes: int) -> Allocation | None:
        device = self._devices[device_index]
        opened = None
        slab_index = self._partial_slab(device, class_bytes)
        if slab_index is None:
            slab_index = opened = self._empty_slab(device)
            if slab_index is None:
                return None
            self._open(device, slab_index, class_bytes)
        slab = device.slabs[slab_index]
        bit = slab.free_mask & -slab.free_mask
        self._take(device, slab, bit)
        position = bit.bit_length() - 1
        extent = self.geometry.extent(device_index, slab_index, position, class_bytes)
        return Allocation(extent, opened)


def device_for(*, stripe: int, device_count: int) -> int:
    """Round robin over the devices.

    Consecutive chunks of a sequence have consecutive stripes, so that every reading
    order keeps all devices busy and one lost device costs 1/``device_count`` of the
    chunks (HCache, section 4.2). Where a sequence starts is its writer's choice, which
    spreads sequences that are shorter than a round.
    """
    return stripe % device_count
