"""Which chunks are in use: the extent of one that is deleted stays until nobody has it pinned."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.write.extents import Extents

PINNED_AT_ONCE = 256
"""Pins that are counted under one hold of the lock: writes and deletions of others wait for it, and
a read names as many chunks as a call may."""


class ChunkPins:
    """Counts the pins of each chunk. Thread-safe.

    ``lock`` is the one under which chunks are chosen for deletion: who pins a chunk sees
    either that it stays or that it is on its way out.
    """

    def __init__(self, extents: Extents, lock: "threading.RLock") -> None:
        self._extents = extents
        self._lock = lock
        self._pins: Counter[ChunkId] = Counter()
        self._held_extents: dict[ChunkId, list[Extent]] = {}

    @property
    def count(self) -> int:
        """Chunks that somebody has pinned; each counts once."""
        return len(self._pins)

    def pin(self, chunks: Iterable[ChunkId]) -> None:
        """Forbids that the chunks' extents are reused until they are unpinned."""
        for part in _parts(chunks):
            with self._lock:
                self._pins.update(part)

    def unpin(self, chunks: Iterable[ChunkId]) -> None:
        """Takes back one pin of each chunk."""
        for part in _parts(chunks):
            with self._lock:
                for chunk in part:
                    self._pins[chunk] -= 1
                    if self._pins[chunk] == 0:
                        del self._pins[chunk]
                        for extent in self._held_extents.pop(chunk, []):
                            self._extents.free(extent)

    def is_pinned(self, chunk: ChunkId) -> bool:
        """Whether anybody has the chunk pinned."""
        return chunk in self._pins

    def among(self, chunks: Iterable[ChunkId]) -> set[ChunkId]:
        """Those of the chunks that somebody has pinned."""
        with self._lock:
            return {chunk for chunk in chunks if chunk in self._pins}

    def free(self, chunk: ChunkId, extent: Extent) -> None:
        """Returns the extent of a chunk whose deletion is committed, after its last unpin."""
        with self._lock:
            if chunk in self._pins:
                self._held_extents.setdefault(chunk, []).append(extent)
            else:
                self._extents.free(extent)


def _parts(chunks: Iterable[ChunkId]) -> Iterator[Sequence[ChunkId]]:
    named = list(chunks)
    return (named[start : start + PINNED_AT_ONCE] for start in range(0, len(named), PINNED_AT_ONCE))
