"""Makes room on the devices by evicting what was not used for the longest time."""

import threading
from concurrent.futures import wait
from itertools import islice

from kvstored.counters import Counters
from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.chunk_store import ChunkStore
from kvstored.tiers.policy.protocol import EvictionPolicy

VICTIMS_PER_ROUND = 16
"""Chunks of one size class that are evicted together, because a commit costs the same."""

VICTIMS_LOOKED_AT_MAX = 1024
"""Pinned chunks that are passed over before the store counts as full."""

ROUNDS_MAX = 8
"""Rounds of eviction for one chunk; pins can make a round useless."""


class NvmeRoom:
    """Keeps the order of use of all chunks on the devices and evicts by it. Thread-safe."""

    def __init__(self, *, policy: EvictionPolicy[ChunkId], counters: Counters) -> None:
        self._policy = policy
        self._counters = counters
        self._policy_lock = threading.Lock()
        self._eviction_lock = threading.Lock()

    def stored(self, chunk: ChunkId, extent: Extent) -> None:
        """Hears of a chunk that became visible on the devices."""
        with self._policy_lock:
            self._policy.insert(chunk, extent.byte_count)

    def used(self, chunk: ChunkId, class_bytes: int) -> None:
        """Hears of a use, from whichever tier."""
        with self._policy_lock:
            self._policy.touch(chunk, class_bytes)

    def removed(self, chunk: ChunkId, extent: Extent) -> None:
        """Hears of a chunk that is gone."""
        with self._policy_lock:
            self._policy.remove(chunk, extent.byte_count)

    def take_extent(self, store: ChunkStore, class_bytes: int, device_index: int) -> Extent | None:
        """Allocates an extent, evicting as much as that needs.

        Waits until the evictions are committed. Returns None when everything that
        could make room is pinned or the remaining devices have failed.
        """
        extent = store.allocate(class_bytes, device_index)
        if extent is not None:
            return extent
        with self._eviction_lock:
            for _ in range(ROUNDS_MAX):
                extent = store.allocate(class_bytes, device_index)
                if extent is not None:
                    return extent
                victims = self._same_class(store, class_bytes) or self._oldest_slab(store)
                if not victims:
                    return None
                self._counters.add("evicted_chunks", len(victims))
                wait([store.delete(chunk) for chunk in victims])
        return None

    def _same_class(self, store: ChunkStore, class_bytes: int) -> list[ChunkId]:
        with self._policy_lock:
            return [chunk for chunk, _ in self._unpinned(store, class_bytes)][:VICTIMS_PER_ROUND]

    def _oldest_slab(self, store: ChunkStore) -> list[ChunkId]:
        """All chunks of the oldest slab that can become empty: then it fits any class."""
        with self._policy_lock:
            places = [_slab_of(store, record) for _, record in self._unpinned(store, None)]
        contents: dict[Slab, list[ChunkId]] = {place: [] for place in places}
        for chunk, record in store.index.records():
            if (place := _slab_of(store, record)) in contents:
                contents[place].append(chunk)
        held = {_slab_of(store, record) for _, record in store.index.quarantined()}
        for place, chunks in contents.items():
            if place not in held and not any(map(store.is_pinned, chunks)):
                return chunks
        return []

    def _unpinned(self, store: ChunkStore, group: int | None) -> list[tuple[ChunkId, ChunkRecord]]:
        """The oldest chunks of a class, or of all, that may be evicted.

        What is not visible any more, because its device failed, leaves the policy here:
        it would stand in front of the others for ever.
        """
        while looked_at := list(islice(self._policy.victims(group), VICTIMS_LOOKED_AT_MAX)):
            found = list(zip(looked_at, store.find(looked_at), strict=True))
            gone = [chunk for chunk, record in found if record is None]
            for chunk in gone:
                self._policy.remove(chunk, group)
            usable = [
                (chunk, record)
                for chunk, record in found
                if record is not None and not store.is_pinned(chunk)
            ]
            if usable or not gone:
                return usable
        return []


Slab = tuple[int, int]
"""Device index and slab index."""


def _slab_of(store: ChunkStore, record: ChunkRecord) -> Slab:
    return record.extent.device_index, store.allocator.slab_index(record.extent)
