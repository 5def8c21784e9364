"""Chunks between a host tier and a real daemon."""

from typing import Any

import pytest
import torch
from google.protobuf.message import Message
from torch import Tensor

from engine_adapters.breaker import PAUSE_S, SLOW_LOOKUP_S
from engine_adapters.vllm.tier_store import TierStore
from kvstored_client import Client
from kvstored_client.testing import MemoryClient, MemoryStore
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import store_pb2
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S

TOKENS = 16
KEYS = [bytes([number]) * 36 for number in range(4)]


def rows(chunk_count: int, chunk_bytes: int) -> Tensor:
    generator = torch.Generator().manual_seed(chunk_bytes)
    return torch.randint(0, 256, (chunk_count, chunk_bytes), dtype=torch.uint8, generator=generator)


def store_of(client: Client, host: Tensor, **options: Any) -> TierStore:
    """Its clock stands still unless a test brings one: no look-up is slow."""
    settings = {
        "chunk_tokens": TOKENS,
        "span_bytes": 8 << 20,
        "timeout_ms": int(PATIENCE_S * 1000),
        "clock": lambda: 0.0,
    }
    return TierStore(client, host, fingerprint="tier", **{**settings, **options})


@pytest.mark.parametrize("chunk_bytes", [1, 4096, (1 << 20) + 1, (3 << 20) + 5])
def test_chunks_of_any_size_come_back(
    shared_daemon: DaemonProcess, request: pytest.FixtureRequest, chunk_bytes: int
) -> None:
    """Bug: a chunk was one slice, and those above the daemon's ``read_bytes_max`` were refused."""
    host = rows(4, chunk_bytes)
    wanted = host.clone()
    salt = request.node.name
    with Client(shared_daemon.socket_path, arena_bytes="64MiB", salt=salt, strict=True) as client:
        store = store_of(client, host)
        assert store.store(KEYS, [0, 1, 2, 3])
        host.zero_()
        assert store.load(KEYS, [3, 2, 1, 0]) == 4
        assert torch.equal(host, wanted.flip(0))


def test_chunks_that_were_put_together_were_no_chunks_of_their_own() -> None:
    """Bug: the slices of a chunk lay apart in the arena and were put as those of its neighbours,
    so that only the same chunks read together were what they had been."""
    host = rows(4, (3 << 20) + 5)
    wanted = host.clone()
    with MemoryClient(MemoryStore(), arena_bytes="64MiB") as client:
        store = store_of(client, host, span_bytes=32 << 20)
        assert store.store(KEYS, [0, 1, 2, 3])
        host.zero_()
        for number, key in enumerate(KEYS):
            assert store.load([key], [number]) == 1
        assert torch.equal(host, wanted)


def test_each_chunk_is_known_for_itself(daemon: DaemonProcess) -> None:
    """Bug: nothing behind the first chunk that is not stored was found."""
    host = rows(4, 4096)
    with Client(daemon.socket_path, arena_bytes="16MiB", strict=True) as client:
        store = store_of(client, host)
        assert store.known(KEYS) == [False] * 4
        assert store.known([]) == []
        assert store.store([KEYS[0], KEYS[2]], [0, 2])
        assert store.known(KEYS[::-1]) == [False, True, False, True]
        assert client.admin.stats().lease_count == 0


def test_no_chunk_of_a_very_long_prompt_was_found() -> None:
    """Bug: all keys went with one call, which the daemon refuses above a number of them."""
    host = rows(1, 4096)
    keys = [number.to_bytes(36, "big") for number in range(CHUNKS_PER_CALL_MAX + 1)]
    with MemoryClient(MemoryStore(), arena_bytes="16MiB") as client:
        store = store_of(client, host)
        assert store.store(keys[-1:], [0])
        found = store.known(keys)
        assert found == [False] * CHUNKS_PER_CALL_MAX + [True]


def test_a_chunk_of_a_large_model_has_a_layout() -> None:
    """Bug: 800 KiB a token, as 13B without grouped heads has, were refused as one layer."""
    store = store_of(
        MemoryClient(MemoryStore()), torch.empty((1, 819_200 * TOKENS), dtype=torch.uint8)
    )
    assert store.layout.layer_count == 13
    assert 0 <= store.layout.chunk_bytes() - 819_200 * TOKENS < 13 * TOKENS


def test_a_region_is_never_larger_than_the_host_tier() -> None:
    """A span of 8 MiB has 32 chunks of 256 KiB."""
    for chunk_count, regions in ((4, 4), (32, 32), (100, 32)):
        host = torch.empty((chunk_count, 256 << 10), dtype=torch.uint8)
        assert store_of(MemoryClient(MemoryStore()), host).region_bytes == regions * 256 << 10


@pytest.mark.parametrize(
    ("span_bytes", "spans"), [(1 << 20, 2), (3 << 18, 2), (1 << 18, 2), (1 << 17, 1)]
)
def test_a_load_holds_two_spans_but_one_of_huge_chunks(span_bytes: int, spans: int) -> None:
    """Chunks of 256 KiB."""
    memory = MemoryStore()
    held: list[int] = []
    host = rows(4, 256 << 10)
    wanted = host.clone()
    with MemoryClient(memory, arena_bytes="64MiB") as client:
        store = store_of(client, host, span_bytes=span_bytes)
        assert store.spans_in_flight == spans
        assert store.store(KEYS, [0, 1, 2, 3])
        host.zero_()
        memory.faults.before = lambda _: held.append(memory.regions_in_use)
        assert store.load(KEYS, [0, 1, 2, 3]) == 4
        assert torch.equal(host, wanted)
    assert max(held) <= spans
    assert memory.regions_in_use == 0


@pytest.mark.parametrize("lost", range(4))
def test_a_load_ends_at_the_first_chunk_that_is_lost(lost: int) -> None:
    memory = MemoryStore()
    host = rows(4, 256 << 10)
    wanted = host.clone()
    with MemoryClient(memory, arena_bytes="64MiB") as client:
        store = store_of(client, host, span_bytes=512 << 10)
        assert store.store(KEYS, [0, 1, 2, 3])
        host.zero_()
        memory.faults.lost_slices = {(store._key(KEYS[lost]), 0)}
        assert store.load(KEYS, [0, 1, 2, 3]) == lost
    assert torch.equal(host[:lost], wanted[:lost])
    assert not host[lost:].any()
    assert memory.regions_in_use == 0


def test_a_load_of_a_store_that_died_fills_nothing() -> None:
    memory = MemoryStore()
    host = rows(4, 256 << 10)
    with MemoryClient(memory, arena_bytes="64MiB") as client:
        store = store_of(client, host)
        assert store.store(KEYS, [0, 1, 2, 3])
        memory.kill()
        assert store.load(KEYS, [0, 1, 2, 3]) == 0


def test_a_slow_daemon_is_not_asked_for_a_while() -> None:
    """Bug: a hung daemon held each request for the whole timeout of a call, one after the other."""
    now_s = 0.0
    memory = MemoryStore()

    def take_long(request: Message) -> None:
        nonlocal now_s
        if isinstance(request, store_pb2.PinRequest):
            now_s += 2 * SLOW_LOOKUP_S

    def asked() -> list[int]:
        return [len(request.keys) for request in memory.asked(store_pb2.PinRequest)]

    memory.faults.before = take_long
    with MemoryClient(memory) as client:
        store = store_of(client, rows(1, 4096), clock=lambda: now_s)
        assert store.known(KEYS[:1]) == [False]
        assert store.known(KEYS[:2]) == [False] * 2
        assert asked() == [1]
        now_s += PAUSE_S
        assert store.known(KEYS[:3]) == [False] * 3
        assert asked() == [1, 3]
