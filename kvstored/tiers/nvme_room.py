"""Makes room on the devices by evicting what was not used for the longest time."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import wait
from itertools import islice

from kvstored.counters import Counters
from kvstored.format.extent import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.chunk_store import ChunkStore
from kvstored.store.chunk_table import ABSENT, ChunkTable
from kvstored.tiers.policy.use_order import UseOrder

VICTIMS_PER_ROUND = 16
"""Chunks of one size class that are evicted together, because a commit costs the same."""

INDEX_VICTIMS_MAX = 1024
"""Chunks that are evicted together when the index has so many too many, and can do it."""

VICTIMS_LOOKED_AT = (4 * VICTIMS_PER_ROUND, 1024)
"""Oldest chunks that are looked at, and how many when all of these are pinned.

Behind the last number the store counts as full.
"""

SLABS_LOOKED_AT_MAX = 64
"""Slabs whose chunks are looked at to empty one of them."""

OLDEST_LOOKED_AT = 256
"""Oldest chunks of all classes among which a class that wants room should have its own."""

STRANDED_MAX = 0.02
"""Share of the devices that may lie in free extents of other classes.

When deletions have stranded more, the emptiest of their slabs is emptied. Else a class
evicts its own oldest chunks if they are among the oldest of all, and takes over the slab
with the largest share of these if not.
"""

ROUNDS_MAX = 8
"""Rounds of eviction for one chunk; pins can make a round useless."""


class NvmeRoom:
    """Knows all chunks on the devices and the order of their use, and evicts by it.

    Thread-safe. No lock is held while the index or a device is asked.
    """

    def __init__(self, *, table: ChunkTable, counters: Counters) -> None:
        self._table = table
        self._order = UseOrder(table)
        self._counters = counters
        self._table_lock = threading.Lock()
        self._eviction_lock = threading.Lock()

    def stored(self, chunk: ChunkId, extent: Extent) -> None:
        """Hears of a chunk that became visible on the devices."""
        with self._table_lock:
            self._table.insert(chunk, extent)

    def used(self, chunks: Iterable[ChunkId]) -> None:
        """Hears of a use, from whichever tier."""
        identities = [chunk.encode() for chunk in chunks]
        with self._table_lock:
            self._table.touch(identities)

    def removed(self, chunk: ChunkId) -> None:
        """Hears of a chunk that is gone."""
        with self._table_lock:
            self._table.remove(chunk)

    def are_stored(self, chunks: Sequence[ChunkId], *, without: Collection[int] = ()) -> list[bool]:
        """Which chunks are on the devices, those of the devices ``without`` left out.

        Asks neither the index nor a device.
        """
        identities = [chunk.encode() for chunk in chunks]
        with self._table_lock:
            rows = self._table.rows(identities)
            if without:
                return [row != ABSENT and self._table.device(row) not in without for row in rows]
        return [row != ABSENT for row in rows]

    @property
    def chunk_count(self) -> int:
        """Chunks on the devices."""
        return len(self._table)

    @property
    def row_end(self) -> int:
        """Behind all rows of the table that hold chunks."""
        return self._table.row_end

    def chunks_in_rows(self, first: int, end: int) -> list[ChunkId]:
        """The chunks in rows ``first`` to ``end``, that one excluded; for walks over all."""
        with self._table_lock:
            return self._table.chunks_in_rows(first, end)

    def class_bytes_in_slab(self, device_index: int, slab_index: int) -> int:
        """The size class of the chunks in a slab; 0 when it holds none."""
        first_slab = self._table.geometry.first_slabs[device_index]
        with self._table_lock:
            if not self._table.chunk_count_in_slab(device_index, slab_index):
                return 0
            return self._table.class_bytes_of(first_slab + slab_index)

    def take_extent(self, store: ChunkStore, class_bytes: int, device_index: int) -> Extent | None:
        """Allocates an extent, evicting as much as that and its entry in the index need.

        Waits until the evictions are committed. Returns None when everything that
        could make room is pinned or the remaining devices have failed. Raises IndexFailure.
        """
        extent = self._allocate(store, class_bytes, device_index)
        if extent is not None:
            return extent
        with self._eviction_lock:
            for _ in range(ROUNDS_MAX):
                extent = self._allocate(store, class_bytes, device_index)
                if extent is not None:
                    return extent
                victims = self._victims(store, class_bytes)
                if not victims:
                    return None
                self._counters.add("evicted_chunks", len(victims))
                wait([store.delete(chunk) for chunk in victims])
        return None

    def _allocate(self, store: ChunkStore, class_bytes: int, device_index: int) -> Extent | None:
        if store.is_index_short:
            return None
        return store.allocate(class_bytes, device_index)

    def _victims(self, store: ChunkStore, class_bytes: int) -> list[ChunkId]:
        """Chunks whose deletion makes room for a class: the first rule that finds some counts.

        0. The index is short of room: the oldest of all.
        1. Too much lies stranded in free extents of other classes: the emptiest of their
           slabs is emptied, and then fits any class.
        2. The class has chunks of its own among the oldest of all: these.
        3. The slab of another class with the largest part of the oldest of all is emptied.
        4. The oldest chunks of the class, however young.
        """
        if store.is_index_short:
            excess = min(store.index_excess_chunks, INDEX_VICTIMS_MAX)
            count = max(VICTIMS_PER_ROUND, excess)
            victims = self._oldest(store, None, count)
            self._counters.add("evicted_for_index_chunks", len(victims))
            return victims
        oldest = self._unpinned(store, None, OLDEST_LOOKED_AT)
        with self._table_lock:
            stranded_slabs = self._table.stranded_slabs(class_bytes, STRANDED_MAX)
            classes = [self._table.class_bytes_of_chunk(chunk) for chunk in oldest]
            old_counts = Counter(filter(None, map(self._table.slab, oldest)))
        if not stranded_slabs:
            own = [
                chunk for chunk, size in zip(oldest, classes, strict=True) if size == class_bytes
            ]
            if own:
                return own[:VICTIMS_PER_ROUND]

        def old_part(slab: tuple[int, int]) -> float:
            return old_counts[slab] / max(store.allocator.used_count(*slab), 1)

        slabs = stranded_slabs or sorted(old_counts, key=old_part, reverse=True)
        return self._whole_slab(store, slabs) or self._oldest(store, class_bytes, VICTIMS_PER_ROUND)

    def _oldest(self, store: ChunkStore, class_bytes: int | None, count: int) -> list[ChunkId]:
        """At most ``count`` of the oldest chunks of a class, or of all, that may be evicted."""
        for looked_at in VICTIMS_LOOKED_AT:
            victims = self._unpinned(store, class_bytes, max(looked_at, count))
            if victims:
                return victims[:count]
        return []

    def _whole_slab(self, store: ChunkStore, slabs: Iterable[tuple[int, int]]) -> list[ChunkId]:
        """All chunks of the first of some slabs that can become empty: then it fits any class."""
        looked_at = 0
        for slab in slabs:
            with self._table_lock:
                # Else something that cannot be evicted lies there: it is in quarantine, is
                # being written, or was deleted while somebody had it pinned.
                can_be_empty = self._table.chunk_count_in_slab(*slab) == (
                    store.allocator.used_count(*slab)
                )
                chunks = self._table.chunks_in_slab(*slab) if can_be_empty else []
            if chunks and not any(map(store.is_pinned, chunks)):
                return chunks
            looked_at += can_be_empty
            if looked_at == SLABS_LOOKED_AT_MAX:
                break
        return []

    def _unpinned(
        self, store: ChunkStore, class_bytes: int | None, looked_at_max: int
    ) -> list[ChunkId]:
        """Those of the oldest chunks of a class, or of all, that may be evicted.

        What is not visible any more, because its device failed, leaves the table here:
        it would stand in front of the others for ever.
        """
        while True:
            with self._table_lock:
                rows = islice(self._order.victims(class_bytes), looked_at_max)
                uses = [self._table.use(row) for row in rows]
            records = store.find([chunk for chunk, _ in uses])
            found = list(zip(uses, records, strict=True))
            gone = [use for use, record in found if record is None]
            with self._table_lock:
                for chunk, time in gone:
                    # It may have been stored anew meanwhile.
                    self._table.remove(chunk, time=time)
            usable = [
                chunk
                for (chunk, _), record in found
                if record is not None and not store.is_pinned(chunk)
            ]
            if usable or not gone:
                return usable
