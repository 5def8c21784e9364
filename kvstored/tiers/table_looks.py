"""Looks at many rows of the table of chunks, in parts: others use it in between.

There may be ten million rows, and a look-up of anybody waits for the table's lock. So nobody holds
it for all of them. What others do between two parts changes no decision for the worse: a chunk that
they use goes only where nothing else does, one that leaves is no victim, and one that comes is the
youngest of all. Whatever is found is looked at once more under the lock, and before it goes the
index and its pins are asked as ever.
"""

import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ABSENT, HELD, UNUSED, ChunkTable
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.turnstile import TURNSTILE

SEGMENTS_AT_ONCE = 4
"""Segments of the table that are looked through under one hold of its lock for the chunks of a
slab: that takes some hundred microseconds, and look-ups of others wait for it."""

LOOKS_MAX = 4
"""Looks for the oldest chunks, where others use all that would be found while it is looked."""


class TableLooks:
    """Looks at a table, which ``lock`` guards. One thread at a time looks.

    Policies over the table have the same pauses from now on: they are asked with the lock held.
    """

    def __init__(self, table: ChunkTable, lock: threading.Lock) -> None:
        self._table = table
        self._lock = lock
        table.times.pause = partial(TURNSTILE.let_in, lock)

    def rows_in_slab(self, slab: int) -> list[int]:
        """The rows of the chunks in a slab, each as it was when its part was looked at."""
        rows: list[int] = []
        columns = self._table.columns
        for start in range(0, len(columns.segments), SEGMENTS_AT_ONCE):
            with self._lock:
                if start:
                    self._table.times.pause()
                rows += columns.rows_in_slab(slab, range(start, start + SEGMENTS_AT_ONCE))
        return rows

    def still_there(self, rows: Iterable[int], slab: int) -> list[int]:
        """Those of some rows that hold a chunk of a slab; with the lock held."""
        columns = self._table.columns
        return [row for row in rows if columns.time(row) != UNUSED and columns.slab(row) == slab]

    def first(
        self,
        policy: EvictionPolicy[ChunkId],
        class_bytes: int | None,
        count_max: int,
        *,
        is_leaving: Callable[[ChunkId], bool],
    ) -> list[tuple[ChunkId, int]]:
        """The first victims of a policy that do not leave already, each with its last use.

        Where others used all that would have been found meanwhile, it is looked again.
        """
        for _ in range(LOOKS_MAX):
            with self._lock:
                began = self._table.clock
                victims = policy.victims(class_bytes)
                staying = (chunk for chunk in victims if not is_leaving(chunk))
                chunks = list(islice(staying, count_max))
                rows = self._table.rows([chunk.encode() for chunk in chunks])
                uses = [self._table.use(row) for row in rows if row != ABSENT]
                if uses or self._table.clock == began:
                    break
        # What was used in a pause goes last.
        return sorted(uses, key=lambda use: use[1] & (HELD - 1) >= began)
