"""Page-aligned memory for transfers, populated before its first use."""

import mmap
from threading import Condition

from kvstored.io.resident import advise_huge_pages, populate
from kvstored_contract.limits import ALIGNMENT_BYTES

# Populating in steps keeps each system call short.
_POPULATE_BYTES = 256 * 1024 * 1024


class AlignedMemory:
    """Anonymous private memory that starts at a page boundary and is zeroed and resident.

    ``view`` is a writable memoryview of format ``B`` and length ``byte_count``. Huge
    pages are asked for, where the system grants them. Raises OSError when the system
    lacks the memory.
    """

    def __init__(self, byte_count: int) -> None:
        if byte_count < 1:
            raise ValueError(f"memory must have at least 1 byte, not {byte_count}")
        self._map = mmap.mmap(-1, byte_count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        advise_huge_pages(self._map)
        populate(self._map, step_bytes=_POPULATE_BYTES)
        self.view = memoryview(self._map)

    def close(self) -> None:
        """Unmaps the memory; raises BufferError while slices of ``view`` are in use."""
        self.view.release()
        self._map.close()


class ScratchPool:
    """A fixed number of aligned buffers that are lent out and given back. Thread-safe."""

    def __init__(self, page_bytes: int, count: int) -> None:
        if page_bytes < 1 or page_bytes % ALIGNMENT_BYTES or count < 1:
            raise ValueError(
                f"a scratch pool needs buffers of a multiple of {ALIGNMENT_BYTES} bytes and at "
                f"least one of them, not {count} of {page_bytes} bytes"
            )
        self._memory = AlignedMemory(page_bytes * count)
        self._returned = Condition()
        self._free = [
            self._memory.view[start : start + page_bytes]
            for start in range(0, page_bytes * count, page_bytes)
        ]
        self._lent: dict[int, memoryview] = {}

    def acquire(self) -> memoryview:
        """A buffer of ``page_bytes`` with any content; waits until one is free."""
        with self._returned:
            self._returned.wait_for(lambda: self._free)
            view = self._free.pop()
            self._lent[id(view)] = view
            return view

    def release(self, view: memoryview) -> None:
        """Gives back exactly the object that ``acquire`` returned; raises ValueError else."""
        with self._returned:
            if self._lent.pop(id(view), None) is None:
                raise ValueError("this buffer is not lent out by the scratch pool")
            self._free.append(view)
            self._returned.notify()

    def close(self) -> None:
        """Unmaps the buffers; raises ValueError while one is lent out."""
        with self._returned:
            if self._lent:
                raise ValueError(f"{len(self._lent)} buffers of the scratch pool are lent out")
            for view in self._free:
                view.release()
            self._free.clear()
            self._memory.close()
