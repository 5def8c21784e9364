"""What waiting requests need of DRAM, and what sequences use of it together."""

import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.bundles import parts
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.turnstile import TURNSTILE

HINTED_AT_ONCE = 256
"""Chunks that the policy hears of under one hold of the lock: reads of others wait for it."""


class FrameHints:
    """Tells a tier's policy, with the tier's lock, which chunks wait and where. Thread-safe.

    ``evict`` makes the first chunk go that may and that nobody waits for, with that lock held, and
    returns its bytes; 0 when there is none.
    """

    def __init__(
        self,
        *,
        room: threading.Condition,
        policy: EvictionPolicy[ChunkId],
        evict: Callable[[], int],
    ) -> None:
        self._room = room
        self._policy = policy
        self._evict = evict

    def is_queued(self, chunk: ChunkId) -> bool:
        """Whether a waiting request needs a chunk."""
        return self._policy.is_queued(chunk)

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Hears which chunks have another place in the queue of waiting requests."""
        # Of a sequence that leaves the queue the last chunk is used first: so it goes first.
        changed = reversed(tuple(places.items()))
        while part := dict(islice(changed, HINTED_AT_ONCE)):
            with self._room:
                self._policy.hint(part)
            TURNSTILE.give_way()

    def used_together(self, chunks: Sequence[ChunkId]) -> None:
        """Hears which chunks a sequence uses, in its order; for policies by sequence."""
        for part in parts(chunks, HINTED_AT_ONCE):
            with self._room:
                self._policy.touch(part, together=True)

    def free_up(self, byte_count: int) -> None:
        """Evicts until so many bytes are free, as far as nobody needs what goes."""
        while byte_count > 0:
            with self._room:
                freed = self._evict()
            if not freed:
                return
            byte_count -= freed
