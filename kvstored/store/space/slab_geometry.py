"""Where extents can lie: slabs of every device, cut into equal extents behind a header.

Pure arithmetic. A *slab number* counts the slabs of all devices, those of device 0
first. A *place* is one 64-bit number: the slab number in the upper half, the position
of the extent in its slab in the lower half.
"""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from kvstored.format.geometry import Extent

POSITION_BITS = 32
_POSITION_MASK = (1 << POSITION_BITS) - 1


@dataclass(frozen=True, slots=True)
class SlabGeometry:
    """Equal slabs on devices that have ``slab_counts`` of them behind ``data_offset``."""

    slab_bytes: int
    slab_counts: tuple[int, ...]
    data_offset: int
    header_bytes: int

    @property
    def slab_count(self) -> int:
        """Slabs of all devices."""
        return sum(self.slab_counts)

    @property
    def first_slabs(self) -> tuple[int, ...]:
        """The number of the first slab of each device."""
        return tuple(accumulate(self.slab_counts, initial=0))[:-1]

    @property
    def class_bytes_max(self) -> int:
        """The largest extent that a slab can hold."""
        return self.slab_bytes - self.header_bytes

    def extents_per_slab(self, class_bytes: int) -> int:
        """How many extents of a size class one slab holds; 0 when it is too large."""
        return self.class_bytes_max // class_bytes

    def slab_index(self, extent: Extent) -> int:
        """The slab of its device that holds an extent."""
        return (extent.offset - self.data_offset) // self.slab_bytes

    def slab_offset(self, slab_index: int) -> int:
        """Device offset of a slab's first byte."""
        return self.data_offset + slab_index * self.slab_bytes

    def locate(self, extent: Extent) -> tuple[int, int]:
        """Slab of the device and position in it; raises ValueError where no extent can be."""
        slab_index = self.slab_index(extent)
        if not 0 <= slab_index < self.slab_counts[extent.device_index]:
            raise ValueError(f"{extent} lies outside the device")
        inside = extent.offset - self.slab_offset(slab_index) - self.header_bytes
        position, remainder = divmod(inside, extent.byte_count)
        fits = 0 <= position < self.extents_per_slab(extent.byte_count)
        if remainder or not fits:
            raise ValueError(f"{extent} does not lie on an extent boundary")
        return slab_index, position

    def extent(self, device_index: int, slab_index: int, position: int, class_bytes: int) -> Extent:
        """The extent at a position of a slab of this size class."""
        offset = self.slab_offset(slab_index) + self.header_bytes + position * class_bytes
        return Extent(device_index, offset, class_bytes)

    def places(
        self,
        devices: NDArray[np.uint16],
        offsets: NDArray[np.uint64],
        byte_counts: NDArray[np.uint64],
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Places of extents that may be anything, and which of them are possible.

        All arrays have shape [n]. The place of an impossible extent is meaningless.
        """
        counts = np.array(self.slab_counts, np.uint64)
        firsts = np.array(self.first_slabs, np.uint64)
        is_possible = (devices < len(self.slab_counts)) & (byte_counts > 0)
        known = np.where(is_possible, devices, 0)
        # Offsets below the first slab wrap around and lie outside like those above the last.
        slabs, inside = np.divmod(offsets - np.uint64(self.data_offset), np.uint64(self.slab_bytes))
        lengths = np.maximum(byte_counts, np.uint64(1))
        positions, remainders = np.divmod(inside - np.uint64(self.header_bytes), lengths)
        is_possible &= slabs < counts[known]
        is_possible &= remainders == 0
        is_possible &= positions < np.uint64(self.class_bytes_max) // lengths
        return firsts[known] + slabs << np.uint64(POSITION_BITS) | positions, is_possible

    def extents(
        self, places: NDArray[np.uint64], byte_counts: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint64]]:
        """Devices and offsets of possible places with these size classes, of shape [n] each."""
        firsts = np.array(self.first_slabs, np.uint64)
        slabs = places >> np.uint64(POSITION_BITS)
        devices = np.searchsorted(firsts, slabs, side="right") - 1
        offsets = (slabs - firsts[devices]) * np.uint64(self.slab_bytes)
        offsets += np.uint64(self.data_offset + self.header_bytes)
        offsets += (places & np.uint64(_POSITION_MASK)) * byte_counts
        return devices.astype(np.uint16), offsets


def place_of(slab_number: int, position: int) -> int:
    """The place of a position in a slab."""
    return slab_number << POSITION_BITS | position


def slab_number(place: int) -> int:
    """The slab of a place."""
    return place >> POSITION_BITS


def slab_position(place: int) -> int:
    """The position of a place in its slab."""
    return place & _POSITION_MASK


def slab_numbers(places: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The slab of each place."""
    return (places >> np.uint64(POSITION_BITS)).astype(np.int64)


def positions(places: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The position of each place in its slab."""
    return (places & np.uint64(_POSITION_MASK)).astype(np.int64)
