"""The client's side of the memory that it shares with the daemon."""

import mmap
import os
import threading
from collections.abc import Callable

from kvstored_client.session.free_space import FreeSpace
from kvstored_client.session.region import Region

BOARDS_SHARE = 16
"""One part in so many of an arena is kept for boards."""

BOARDS_BYTES_MAX = 4 * 1024 * 1024
"""What is kept for boards at most."""


class ArenaSizeError(ValueError):
    """The descriptor does not hold as many bytes as the daemon announced."""


def boards_bytes(arena_bytes: int) -> int:
    """What an arena of that size keeps for boards."""
    return min(arena_bytes // BOARDS_SHARE, BOARDS_BYTES_MAX)


class Arena:
    """A mapped arena and the space in it, which the client manages alone. Thread-safe.

    The mapping ends when nothing refers to it any more: regions and the arrays made
    from them keep it.
    """

    __slots__ = ("_free", "_is_alive", "_lock", "_memory")

    def __init__(self, memory: memoryview, is_alive: Callable[[], bool]) -> None:
        self._memory = memory
        self._is_alive = is_alive
        self._lock = threading.Lock()
        self._free = FreeSpace(len(memory), reserved_bytes=boards_bytes(len(memory)))

    @property
    def memory(self) -> memoryview:
        """All of it, with what is kept for boards."""
        return self._memory

    def allocate(self, byte_count: int) -> Region | None:
        """A region of ``byte_count`` bytes; None when no free stretch is so large.

        Raises ValueError for less than one byte.
        """
        return self._allocate(byte_count, from_end=False)

    def allocate_board(self, byte_count: int) -> Region | None:
        """A region for a board, which finds room when the payload fills the rest."""
        return self._allocate(byte_count, from_end=True)

    def _allocate(self, byte_count: int, *, from_end: bool) -> Region | None:
        with self._lock:
            offset = self._free.allocate(byte_count, from_end=from_end)
        if offset is None:
            return None
        return Region(
            self._memory[offset : offset + byte_count],
            arena=self,
            offset=offset,
            is_alive=self._is_alive,
            release=self._release,
        )

    @property
    def free_bytes(self) -> int:
        """Bytes that no region holds, however scattered."""
        with self._lock:
            return self._free.free_bytes

    def _release(self, offset: int) -> None:
        with self._lock:
            self._free.release(offset)


def map_arena(descriptor: int, byte_count: int) -> memoryview:
    """Maps the arena, its pages populated, so that no first touch falls into a copy.

    The descriptor stays the caller's. Raises ArenaSizeError, since touching bytes
    past the end of the file would kill the process.
    """
    actual = os.fstat(descriptor).st_size
    if actual < byte_count or byte_count < 1:
        raise ArenaSizeError(f"the arena holds {actual} bytes, not the announced {byte_count}")
    return memoryview(mmap.mmap(descriptor, byte_count, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE))
