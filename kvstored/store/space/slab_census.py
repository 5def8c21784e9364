"""What each slab holds: the size class of its chunks, and how many there are. Pure.

The owner serialises the calls.
"""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from kvstored.store.space.slab_geometry import SlabGeometry, slab_numbers

STRANDED_SLABS_MAX = 64
"""Slabs that one look for stranded room names."""


class SlabCensus:
    """Size class and chunk count of every slab, by its number over all devices.

    Invariant: a class has as many chunks as all slabs of it together.
    """

    def __init__(self, geometry: SlabGeometry) -> None:
        self.geometry = geometry
        self._class_bytes = np.zeros(geometry.slab_count, np.uint64)
        self._counts = np.zeros(geometry.slab_count, np.int64)
        self._class_counts: dict[int, int] = {}
        self._first_slabs = geometry.first_slabs
        self._slab_devices = np.repeat(np.arange(len(geometry.slab_counts)), geometry.slab_counts)
        self._devices: list[int] = self._slab_devices.tolist()

    def number(self, device_index: int, slab_index: int) -> int:
        """The number of a slab of a device."""
        return self._first_slabs[device_index] + slab_index

    def place(self, slab: int) -> tuple[int, int]:
        """Device index and slab index of a slab."""
        device_index = self._devices[slab]
        return device_index, slab - self._first_slabs[device_index]

    def class_bytes_of(self, slab: int) -> int:
        """The size class of a slab; 0 while it is not known."""
        return int(self._class_bytes[slab])

    def classes_of(self, slabs: NDArray[np.int64]) -> NDArray[np.uint64]:
        """``class_bytes_of`` many; shapes [n] and [n]."""
        classes: NDArray[np.uint64] = self._class_bytes[slabs]
        return classes

    def chunk_count(self, slab: int) -> int:
        """Chunks that lie in a slab."""
        return int(self._counts[slab])

    def count_of_class(self, class_bytes: int) -> int:
        """Chunks of a size class."""
        return self._class_counts.get(class_bytes, 0)

    def enter(self, slab: int, class_bytes: int) -> None:
        """Counts a chunk that came to a slab, which has its size class from now on."""
        self._class_bytes[slab] = class_bytes
        self._counts[slab] += 1
        self._class_counts[class_bytes] = self._class_counts.get(class_bytes, 0) + 1

    def leave(self, slab: int) -> None:
        """Counts a chunk that has left a slab."""
        self._counts[slab] -= 1
        self._class_counts[int(self._class_bytes[slab])] -= 1

    def claim_classes(
        self, places: NDArray[np.uint64], class_bytes: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Gives size classes to slabs that have none yet; tells where it is another one.

        Shapes [n], [n] and [n]. Counts nothing.
        """
        slabs = slab_numbers(places)
        is_new = self._class_bytes[slabs] == 0
        self._class_bytes[slabs[is_new]] = class_bytes[is_new]
        differs: NDArray[np.bool_] = self._class_bytes[slabs] != class_bytes
        return differs

    def forget_class(self, slab: int) -> None:
        """Lets a slab without chunks have any size class again."""
        assert self._counts[slab] == 0
        self._class_bytes[slab] = 0

    def recount(self, counts: NDArray[np.int64]) -> None:
        """Takes how many chunks each slab has; shape [slab count]."""
        self._counts[:] = counts
        self._class_counts = {
            int(class_bytes): int(counts[self._class_bytes == class_bytes].sum())
            for class_bytes in np.unique(self._class_bytes[counts > 0])
        }

    def stranded(
        self, class_bytes: int, share_max: float, *, without: Collection[int] = ()
    ) -> list[tuple[int, int]]:
        """Device and slab index of the slabs with the most room for other classes only.

        Empty unless their free extents add up to more than ``share_max`` of all slabs. Nothing on
        the devices ``without`` is room.
        """
        geometry = self.geometry
        owners = self._class_bytes.astype(np.int64)
        extent_counts = geometry.class_bytes_max // np.maximum(owners, 1)
        is_other = (self._counts > 0) & (owners != class_bytes)
        if without:
            is_other &= ~np.isin(self._slab_devices, list(without))
        free_bytes = np.where(is_other, (extent_counts - self._counts) * owners, 0)
        if free_bytes.sum() <= share_max * geometry.slab_bytes * geometry.slab_count:
            return []
        emptiest = np.argsort(-free_bytes, kind="stable")[:STRANDED_SLABS_MAX]
        return [self.place(int(slab)) for slab in emptiest if free_bytes[slab]]
