"""Leases of one session: pins with an end. Pure; the caller names the time."""

from dataclasses import dataclass

from kvstored.format.identity import ChunkId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Pinned chunks and the time, in seconds of the caller's clock, when they are freed."""

    chunks: tuple[ChunkId, ...]
    expires_at: float


class LeaseTable:
    """Every pinned chunk is returned exactly once: by release, expiry or clear."""

    def __init__(self) -> None:
        self._leases: dict[int, Lease] = {}
        self._next_id = 1
        self.chunk_count = 0
        """Chunks of all leases, each counted as often as it is leased."""

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> int:
        """Keeps a lease and returns its id, which is never 0 and never used again."""
        lease_id = self._next_id
        self._next_id += 1
        self._leases[lease_id] = lease
        self.chunk_count += len(lease.chunks)
        return lease_id

    def release(self, lease_id: int) -> tuple[ChunkId, ...] | None:
        """Ends one lease; returns its chunks, or None when there is no such lease."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        self.chunk_count -= len(lease.chunks)
        return lease.chunks

    def expire(self, now: float) -> tuple[ChunkId, ...]:
        """Ends what is due at ``now`` and returns its chunks."""
        due = [key for key, lease in self._leases.items() if lease.expires_at <= now]
        chunks = tuple(chunk for key in due for chunk in self._leases.pop(key).chunks)
        self.chunk_count -= len(chunks)
        return chunks

    def clear(self) -> tuple[ChunkId, ...]:
        """Ends all leases and returns their chunks."""
        chunks = tuple(chunk for lease in self._leases.values() for chunk in lease.chunks)
        self._leases.clear()
        self.chunk_count = 0
        return chunks
