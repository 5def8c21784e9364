"""Which parts of an arena are free. Pure.

Invariants: free ranges are sorted, disjoint and never adjacent; free and used ranges
together are the whole capacity.
"""

from bisect import bisect_left, insort

from kvstored_contract.layout import align_up


class FreeSpace:
    """First-fit bookkeeping of ``capacity_bytes``, in units of the slice alignment.

    Not thread-safe.
    """

    __slots__ = ("_free", "_limit", "_used")

    def __init__(self, capacity_bytes: int, *, reserved_bytes: int = 0) -> None:
        usable = align_up(capacity_bytes + 1) - align_up(1)
        self._limit = usable - align_up(reserved_bytes)
        self._free: list[tuple[int, int]] = [(0, usable)] if usable else []
        self._used: dict[int, int] = {}

    @property
    def free_bytes(self) -> int:
        """Bytes that are not allocated, however scattered."""
        return sum(end - start for start, end in self._free)

    def allocate(self, byte_count: int, *, from_end: bool = False) -> int | None:
        """Offset of a free stretch that is used from now on; None when there is none so large.

        ``from_end`` searches from the end, which keeps small short-lived stretches from
        splitting the large ones; only it may use the last ``reserved_bytes``. Raises
        ValueError for less than one byte.
        """
        if byte_count < 1:
            raise ValueError(f"an allocation has at least 1 byte, not {byte_count}")
        needed = align_up(byte_count)
        indices = range(len(self._free))
        for index in reversed(indices) if from_end else indices:
            start, end = self._free[index]
            if (end if from_end else min(end, self._limit)) - start < needed:
                continue
            if from_end:
                offset, rest = end - needed, (start, end - needed)
            else:
                offset, rest = start, (start + needed, end)
            self._free[index : index + 1] = [rest] if rest[0] < rest[1] else []
            self._used[offset] = needed
            return offset
        return None

    def release(self, offset: int) -> None:
        """Frees the stretch at ``offset`` and joins it with its free neighbours.

        Raises KeyError when nothing is allocated there.
        """
        start, end = offset, offset + self._used.pop(offset)
        index = bisect_left(self._free, (start, end))
        if index < len(self._free) and self._free[index][0] == end:
            end = self._free.pop(index)[1]
        if index > 0 and self._free[index - 1][1] == start:
            start = self._free.pop(index - 1)[0]
        insort(self._free, (start, end))
