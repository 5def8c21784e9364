"""Contiguous reservations out of a fixed number of token slots. Pure."""

from bisect import insort
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SlotRange:
    """Slots ``first`` to ``first + count - 1``."""

    first: int
    count: int

    @property
    def stop(self) -> int:
        """Slot behind the last one."""
        return self.first + self.count


class SlotPool:
    """First-fit bookkeeping. Not thread-safe.

    Invariant: the free ranges are sorted, disjoint and never adjacent.
    """

    def __init__(self, slot_count: int) -> None:
        self.slot_count = slot_count
        self._free = [SlotRange(0, slot_count)]

    @property
    def free_count(self) -> int:
        """Slots that are not reserved, whether contiguous or not."""
        return sum(free.count for free in self._free)

    def reserve(self, count: int) -> SlotRange | None:
        """``count`` >= 1 contiguous slots, or None when no free range is long enough."""
        for index, free in enumerate(self._free):
            if free.count >= count:
                rest = SlotRange(free.first + count, free.count - count)
                self._free[index : index + 1] = [rest] if rest.count else []
                return SlotRange(free.first, count)
        return None

    def release(self, slots: SlotRange) -> None:
        """Returns a range that ``reserve`` gave; raises ValueError for any other range."""
        if any(free.first < slots.stop and slots.first < free.stop for free in self._free):
            raise ValueError(f"{slots} is free already")
        insort(self._free, slots)
        merged: list[SlotRange] = []
        for free in self._free:
            if merged and merged[-1].stop == free.first:
                merged[-1] = SlotRange(merged[-1].first, merged[-1].count + free.count)
            else:
                merged.append(free)
        self._free = merged
