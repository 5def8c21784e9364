"""Histories of more chunks than one call may name: several calls, of which nobody knows."""

from collections.abc import Sequence

from kvstored_client import Client, Lease, StateLayout
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX


class JoinedLease(Lease):
    """Several leases, which are released together."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Lease], is_pinned: tuple[bool, ...]) -> None:
        # What ``Lease`` does with the grant of one call, the parts do with theirs.
        self.chunk_count = sum(is_pinned)
        self.is_pinned = is_pinned
        self._parts = tuple(parts)

    def release(self) -> bool:
        """As of every lease; False when one of them had ended already."""
        ended = [part.release() for part in self._parts]
        return all(ended)


def pinned(
    client: Client, layout: StateLayout, keys: Sequence[bytes], *, lease_ms: int
) -> Lease | None:
    """As ``Client.pin``, of any number of keys."""
    if len(keys) <= CHUNKS_PER_CALL_MAX:
        return client.pin(layout, keys, lease_ms=lease_ms) if keys else None
    leases: list[Lease] = []
    is_pinned: list[bool] = []
    try:
        for first in range(0, len(keys), CHUNKS_PER_CALL_MAX):
            part = keys[first : first + CHUNKS_PER_CALL_MAX]
            lease = client.pin(layout, part, lease_ms=lease_ms)
            is_pinned += [False] * len(part) if lease is None else lease.is_pinned
            leases += [] if lease is None else [lease]
    except BaseException:
        for lease in leases:
            lease.release()
        raise
    return JoinedLease(leases, tuple(is_pinned)) if leases else None


def created(
    client: Client, name: str, layout: StateLayout, *, keys: Sequence[bytes], ephemeral: bool
) -> bool:
    """As ``Client.sequences.create``, with any number of keys; whether there is one now."""
    sequences = client.sequences
    made = sequences.create(name, layout, keys=keys[:CHUNKS_PER_CALL_MAX], ephemeral=ephemeral)
    if made is None:
        return False
    for first in range(CHUNKS_PER_CALL_MAX, len(keys), CHUNKS_PER_CALL_MAX):
        part = keys[first : first + CHUNKS_PER_CALL_MAX]
        if sequences.append(name, part, expected_chunks=first) is None:
            sequences.delete(name)
            return False
    return True
