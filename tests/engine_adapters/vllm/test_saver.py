"""Saves that find no room: they are counted, and hold nothing of the arena."""

from typing import Any, cast

import pytest
import torch

from engine_adapters.vllm import saver as saver_module
from engine_adapters.vllm.chunk_memory import ChunkMemory
from engine_adapters.vllm.kv_blocks import KvBlocks
from engine_adapters.vllm.orders import SaveOrder
from engine_adapters.vllm.saver import Saver
from kvstored_client import (
    LayerState,
    PutOutcome,
    StateKind,
    StateLayout,
)
from tests.engine_adapters.vllm.scripted_store import ARENA_BYTES, HeldPuts
from tests.support.waiting import wait_until

BLOCK_TOKENS, CHUNK_BLOCKS, LAYERS = 4, 2, 2
TOKEN_BYTES = 16 * 1024
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, TOKEN_BYTES),) * LAYERS,
    chunk_tokens=BLOCK_TOKENS * CHUNK_BLOCKS,
)
CHUNK_BYTES = ChunkMemory.byte_count(LAYOUT, 1)
FITTING = ARENA_BYTES // CHUNK_BYTES


def order_of(chunk_count: int) -> SaveOrder:
    return SaveOrder(
        request_id="a",
        first_chunk=0,
        parent_key=b"",
        chain_keys=tuple(bytes([chunk]) * 32 for chunk in range(chunk_count)),
        block_ids=tuple(range(chunk_count * CHUNK_BLOCKS)),
    )


def saver_of(client: HeldPuts, **options: Any) -> Saver:
    block_count = (FITTING + 2) * CHUNK_BLOCKS
    cache = {
        f"layer{layer}": torch.zeros(block_count, BLOCK_TOKENS, TOKEN_BYTES // 4)
        for layer in range(LAYERS)
    }
    blocks = KvBlocks(cache, list(cache))
    return Saver(cast("Any", client), LAYOUT, blocks, span_chunks=1, **options)


def settled(saver: Saver) -> dict[str, float]:
    wait_until(lambda: not saver.is_busy)
    return saver.take_counts()


def test_save_that_the_arena_cuts_holds_nothing_when_its_puts_are_answered() -> None:
    """The request still runs: nothing of what it saved waits for its end."""
    client = HeldPuts()
    saver = saver_of(client)
    saver.save([order_of(FITTING + 2)])
    assert client.free_bytes < CHUNK_BYTES
    client.goes_on.set()
    counts = settled(saver)
    assert counts["dropped_saves"] == 2
    assert counts["saved_tokens"] == FITTING * LAYOUT.chunk_tokens
    assert client.free_bytes == ARENA_BYTES
    assert saver.take_stored() == order_of(FITTING).chain_keys
    saver.drain()


def test_save_that_is_refused_holds_nothing() -> None:
    client = HeldPuts()
    client.outcome = PutOutcome.REJECTED
    client.goes_on.set()
    saver = saver_of(client)
    saver.save([order_of(2)])
    assert settled(saver) == {"dropped_saves": 2}
    assert client.free_bytes == ARENA_BYTES
    assert saver.take_stored() == ()
    saver.drain()


def test_chunk_that_is_there_already_is_told_to_be_stored_and_is_not_counted() -> None:
    """Bug: one that was told to be removed because a load was late stayed so for routers."""
    client = HeldPuts()
    client.outcome = PutOutcome.EXISTED
    client.goes_on.set()
    saver = saver_of(client)
    saver.save([order_of(2)])
    assert settled(saver).get("saved_tokens", 0) == 0
    assert saver.take_stored() == order_of(2).chain_keys
    saver.drain()


def test_save_that_would_wait_behind_too_many_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver_module, "QUEUED_MAX", 1)
    client = HeldPuts()
    saver = saver_of(client)
    saver.save([order_of(1)])
    wait_until(lambda: saver._queue.qsize() == 0)
    saver.save([order_of(3)])
    assert saver.take_counts() == {"dropped_saves": 2}
    client.goes_on.set()
    settled(saver)
    assert client.free_bytes == ARENA_BYTES
    saver.drain()


def test_nothing_is_taken_without_a_daemon() -> None:
    client = HeldPuts()
    client.epoch = 0
    saver = saver_of(client)
    saver.save([order_of(1)])
    assert saver.take_counts() == {"dropped_saves": 1}
    assert client.free_bytes == ARENA_BYTES
    saver.drain()


class Check:
    """A check that has the first chunk fail."""

    def __init__(self) -> None:
        self.compared: list[tuple[int, tuple[int, ...]]] = []

    def compare(self, memory: ChunkMemory, chunk: int, block_ids: tuple[int, ...]) -> None:
        assert memory.chunk_count == 1
        self.compared.append((chunk, block_ids))
        raise TypeError("norms of this model give pairs")


def test_states_that_cannot_be_restored_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: whatever lay in a layer's input was stored, and each restoration gave other tokens."""
    told: list[str] = []
    warn = saver_module.LOGGER
    monkeypatch.setattr(warn, "warning", lambda text, *values: told.append(text % values))
    client, check = HeldPuts(), Check()
    client.goes_on.set()
    given_up: list[bool] = []
    saver = saver_of(client, check=check, give_up=lambda: given_up.append(True))
    saver.save([order_of(2)])
    saver.save([order_of(1)])
    assert settled(saver) == {"dropped_saves": 3}
    assert client.free_bytes == ARENA_BYTES
    assert check.compared == [(0, (0, 1))]
    assert given_up == [True]
    (sentence,) = told
    assert "norms of this model give pairs" in sentence
    saver.drain()
