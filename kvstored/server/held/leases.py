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

    def release(self, lease_id: int) -> Lease | None:
        """Ends and returns one lease; None when there is no such lease."""
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return None
        self.chunk_count -= len(lease.chunks)
        return lease

    def expire(self, now: float) -> tuple[Lease, ...]:
        """Ends and returns what is due at ``now``."""
        due = [key for key, lease in self._leases.items() if lease.expires_at <= now]
        leases = tuple([self._leases.pop(key) for key in due])
        self.chunk_count -= sum(len(lease.chunks) for lease in leases)
        return leases

    def clear(self) -> tuple[Lease, ...]:
        """Ends and returns all leases."""
        leases = tuple(self._leases.values())
        self._leases.clear()
        self.chunk_count = 0
        return leases
