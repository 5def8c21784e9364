"""What was in DRAM too long without a use."""

import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.lifetimes import KeyAges, Lifetimes

EXPIRED_AT_ONCE = 256
"""Chunks that go under one hold of the lock: reads of others wait for it."""


class FrameAges:
    """When the chunks of a tier were used last, as far as they expire. Thread-safe.

    ``use`` and ``remove`` are called with the tier's lock, ``room``, held. ``evict`` makes a chunk
    go if nothing keeps it, with that lock held, and tells whether it did.
    """

    def __init__(
        self,
        lifetimes: Lifetimes,
        *,
        room: threading.Condition,
        evict: Callable[[ChunkId], bool],
    ) -> None:
        self._is_on = bool(lifetimes.all_s)
        self._ages: KeyAges[ChunkId] = KeyAges(lifetimes, lambda chunk: chunk.namespace_id)
        self._room = room
        self._evict = evict

    def use(self, chunk: ChunkId) -> None:
        """Hears that a chunk enters the tier, or is used."""
        if self._is_on:
            self._ages.use(chunk, time.monotonic())

    def remove(self, chunk: ChunkId) -> None:
        """Hears that a chunk has left."""
        self._ages.remove(chunk)

    def expired(self, chunks: Sequence[ChunkId]) -> set[ChunkId]:
        """Those of some chunks that are here and have expired."""
        if not self._is_on:
            return set()
        now_s = time.monotonic()
        with self._room:
            return {chunk for chunk in chunks if self._ages.has_expired(chunk, now_s)}

    def drop(self, chunks: Sequence[ChunkId]) -> None:
        """Makes those of some chunks go that nothing keeps."""
        for start in range(0, len(chunks), EXPIRED_AT_ONCE):
            with self._room:
                for chunk in chunks[start : start + EXPIRED_AT_ONCE]:
                    self._evict(chunk)

    def expire(self) -> int:
        """Makes expired chunks go, some at a time; how many. What is in use now counts as used."""
        count = 0
        while self._is_on:
            now_s = time.monotonic()
            with self._room:
                expired = list(islice(self._ages.expired(now_s), EXPIRED_AT_ONCE))
                for chunk in expired:
                    if self._evict(chunk):
                        count += 1
                    else:
                        self._ages.use(chunk, now_s)
            if len(expired) < EXPIRED_AT_ONCE:
                break
        return count
