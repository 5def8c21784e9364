"""Bounds how much of the index's map counts as memory of this process.

LMDB reads through a map of its file, and every page that was touched stays mapped: with
millions of records that would be gigabytes which only mirror the system's page cache.
"""

import ctypes
import threading
from pathlib import Path

FAULT_BYTES = 64 * 1024
"""What the kernel maps around a page that is touched and in its cache."""
RESIDENT_BYTES_MAX = 512 * 1024 * 1024
STRETCH_BYTES = 16 * 1024 * 1024
"""What is released at once: about 0.1 ms."""
_MADV_DONTNEED = 4
_MAPS = Path("/proc/self/maps")
_PATH_FIELD = 5


class MappedPages:
    """Releases the map of one file, stretch after stretch, as fast as look-ups fill it.

    Released pages stay in the page cache; touching them again costs a minor fault.
    After ``close`` nothing is released any more: it must come before the file is
    unmapped. Thread-safe.
    """

    def __init__(self, file: Path, *, resident_bytes_max: int = RESIDENT_BYTES_MAX) -> None:
        self._file = file
        self._resident_bytes_max = resident_bytes_max
        self._lock = threading.Lock()
        self._mapping = find_mapping(file)
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise
        self._owed_bytes = 0.0
        self._position = 0
        self._file_bytes = 0 if self._mapping is None else file.stat().st_size

    def touched(self, count: int) -> None:
        """Hears of so many look-ups, each at any place of the file."""
        with self._lock:
            if self._mapping is None:
                return
            # A whole round releases everything and takes as many look-ups as the bound allows.
            round_lookups = self._resident_bytes_max / FAULT_BYTES
            self._owed_bytes += count * max(self._file_bytes, STRETCH_BYTES) / round_lookups
            if self._owed_bytes >= STRETCH_BYTES:
                self._file_bytes = self._file.stat().st_size
                if self._file_bytes > self._resident_bytes_max:
                    self._release_next(self._mapping, min(self._owed_bytes, self._file_bytes))
                self._owed_bytes = 0.0

    def close(self) -> None:
        """Ends it."""
        with self._lock:
            self._mapping = None

    def _release_next(self, mapping: tuple[int, int], wanted_bytes: float) -> None:
        """Releases from where the last time ended, and goes on at the start after the end."""
        start, map_bytes = mapping
        end = min(self._file_bytes, map_bytes)
        while wanted_bytes > 0:
            if self._position >= end:
                self._position = 0
            whole = -(-min(int(wanted_bytes) + 1, end - self._position) // FAULT_BYTES)
            # Behind the map lies memory of somebody else.
            step_bytes = min(whole * FAULT_BYTES, map_bytes - self._position)
            self._madvise(
                ctypes.c_void_p(start + self._position), ctypes.c_size_t(step_bytes), _MADV_DONTNEED
            )
            self._position += step_bytes
            wanted_bytes -= step_bytes


def find_mapping(file: Path) -> tuple[int, int] | None:
    """Address and length of this process's shared map of a file, if it has exactly one."""
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return None
    path = str(file.resolve())
    found = []
    for line in lines:
        span, permissions, *rest = line.split(maxsplit=_PATH_FIELD)
        if permissions.endswith("s") and rest[-1] == path:
            start, end = (int(number, 16) for number in span.split("-"))
            found.append((start, end - start))
    return found[0] if len(found) == 1 else None
