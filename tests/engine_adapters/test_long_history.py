"""Histories of more chunks than one call may name."""

from collections.abc import Iterator

import pytest

from engine_adapters.long_history import created, pinned
from kvstored_client import LayerState, NewChunk, Placement, Reason, StateKind, StateLayout
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX

LAYOUT = StateLayout(
    model="m", dtype="uint8", layers=(LayerState(StateKind.HIDDEN, 1),), chunk_tokens=1
)
KEYS = [number.to_bytes(32, "big") for number in range(CHUNKS_PER_CALL_MAX + 2)]
STORED = (KEYS[0], KEYS[-1])


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    """Of a store that has the first chunk and the last one."""
    with MemoryClient(MemoryStore()) as client:
        region = client.allocate(Placement.contiguous_bytes(LAYOUT, len(STORED)))
        assert region is not None
        with region:
            chunks = [NewChunk(key=key, token_count=1) for key in STORED]
            client.put(LAYOUT, chunks, Placement.contiguous(region, LAYOUT))
        yield client


def test_nothing_of_a_long_history_was_found(client: MemoryClient) -> None:
    """Bug: the daemon refuses to pin more chunks than a call may have, which was a miss of all."""
    lease = pinned(client, LAYOUT, KEYS, lease_ms=10_000)
    assert lease is not None
    assert lease.chunk_count == 2
    assert [KEYS[place] for place, is_there in enumerate(lease.is_pinned) if is_there] == [*STORED]
    assert client.store.leases_in_use == 2
    assert lease.release()
    assert client.store.leases_in_use == 0
    assert pinned(client, LAYOUT, KEYS[1:-1], lease_ms=10_000) is None
    assert pinned(client, LAYOUT, (), lease_ms=10_000) is None
    short = pinned(client, LAYOUT, KEYS[:2], lease_ms=10_000)
    assert short is not None
    assert short.is_pinned == (True, False)


def test_a_sequence_of_a_long_history_is_made_in_parts(client: MemoryClient) -> None:
    assert created(client, "long", LAYOUT, keys=KEYS[:1], ephemeral=False)
    assert not created(client, "long", LAYOUT, keys=KEYS[:1], ephemeral=False)
    client.store.faults.refusals[CallName.SEQUENCE_APPEND] = Reason.INTERNAL
    assert not created(client, "longer", LAYOUT, keys=KEYS, ephemeral=False)
    assert client.sequences.get("longer") is None
