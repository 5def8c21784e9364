"""A look-up that ends without an answer keeps nothing, and its errors are its caller's."""

import threading

import pytest

from engine_adapters.runner.ranks.bounded_match import match_within
from kvstored_client import LayerState, Lease, StateKind, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore, StoredChunk
from kvstored_protos.v1.store_pb2 import MatchRequest
from tests.engine_adapters.runner.memory import Clock, at
from tests.support.waiting import PATIENCE_S, wait_until

LAYOUT = StateLayout(
    model="m", dtype="uint8", layers=(LayerState(StateKind.KV, 8),), chunk_tokens=4
)
KEY = bytes(32)


@pytest.fixture
def client() -> MemoryClient:
    store = MemoryStore()
    chunk = StoredChunk(layout_id=LAYOUT.layout_id, slices=(bytes(32),), token_count=4)
    store.chunks[KEY] = chunk
    return MemoryClient(store)


def find(client: MemoryClient, clock: Clock) -> int | None:
    found = match_within(client, LAYOUT, [KEY], lease_ms=60_000, wait_s=1.0, clock=clock)
    if found is None:
        return None
    assert found.lease is not None
    found.lease.release()
    return found.chunk_count


def test_an_answer_in_time(client: MemoryClient) -> None:
    assert find(client, Clock()) == 1


def test_a_late_answer_releases_what_it_keeps(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, is_over, released = Clock(), threading.Event(), threading.Event()
    release = Lease.release

    def note(lease: Lease) -> None:
        release(lease)
        released.set()

    def answer_late() -> None:
        clock.advance(1.0)
        assert is_over.wait(PATIENCE_S)

    monkeypatch.setattr(Lease, "release", note)
    client.store.faults.before = at(MatchRequest, answer_late)
    assert find(client, clock) is None
    assert not released.is_set()
    is_over.set()
    wait_until(released.is_set)


def test_an_error_of_the_call_is_raised(
    client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(client, "match", fail)
    with pytest.raises(RuntimeError, match="broken"):
        find(client, Clock())


def test_an_error_that_comes_too_late_is_nobodys(client: MemoryClient) -> None:
    clock, is_over = Clock(), threading.Event()

    def fail_late() -> None:
        clock.advance(1.0)
        assert is_over.wait(PATIENCE_S)
        raise RuntimeError("late")

    client.store.faults.before = at(MatchRequest, fail_late)
    assert find(client, clock) is None
    is_over.set()
