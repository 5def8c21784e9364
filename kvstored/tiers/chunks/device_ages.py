"""What was on the devices too long without a use."""

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_columns import ROW_BITS, ROW_MASK, UNUSED
from kvstored.store.space.chunk_table import ABSENT, ChunkTable
from kvstored.tiers.chunks.account_rows import in_namespace
from kvstored.tiers.policy.lifetimes import Lifetimes, UseMarks
from kvstored.turnstile import TURNSTILE


class DeviceAges:
    """Tells which chunks of a table have expired, without memory for any. Thread-safe.

    ``lock`` guards the table. It is held for one segment of rows at a time.
    """

    def __init__(self, lifetimes: Lifetimes, *, table: ChunkTable, lock: threading.Lock) -> None:
        self.lifetimes = lifetimes
        self._table = table
        self._lock = lock
        self._marks = UseMarks(lifetimes)

    @property
    def is_on(self) -> bool:
        """Whether anything ever expires."""
        return bool(self.lifetimes.all_s)

    def look(self, now_s: float) -> None:
        """Hears what time it is: what was used last before that long has expired."""
        with self._lock:
            self._marks.look(self._table.clock, now_s)

    def expired(self, chunks: Sequence[ChunkId]) -> tuple[set[ChunkId], list[ChunkId]]:
        """Those of some chunks that are here and have expired, and those that are not here."""
        expired: set[ChunkId] = set()
        absent: list[ChunkId] = []
        for part in TURNSTILE.parts(chunks):
            with self._lock:
                rows = self._table.rows([chunk.encode() for chunk in part])
                for chunk, row in zip(part, rows, strict=True):
                    if row == ABSENT:
                        absent.append(chunk)
                    elif self._table.times.of(row) < self._marks.of(chunk.namespace_id):
                        expired.add(chunk)
        return expired, absent

    @property
    def segment_count(self) -> int:
        """Segments of rows, for walks over all."""
        return len(self._table.columns.segments)

    def in_segment(self, segment: int, first: int, count_max: int) -> list[tuple[int, ChunkId]]:
        """Expired chunks of a segment with their index in it, from ``first`` on."""
        with self._lock:
            indices = self._expired_indices(segment, first)[:count_max].tolist()
            columns = self._table.columns
            return [(index, columns.chunk((segment << ROW_BITS) + index)) for index in indices]

    def _expired_indices(self, segment: int, first: int) -> NDArray[np.int64]:
        times = self._table.times.segment(segment)
        named = list(self._marks.named())
        latest = max([self._marks.default, *(before for _, before in named)])
        indices = first + np.flatnonzero(times[first : ROW_MASK + 1] < min(latest, UNUSED))
        limits = np.full(len(indices), self._marks.default, np.uint64)
        for namespace_id, before in named:
            limits[in_namespace(self._table, segment, indices, namespace_id)] = before
        expired: NDArray[np.int64] = indices[times[indices] < limits]
        return expired
