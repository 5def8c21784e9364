"""Saves that find no room: they are counted, and hold nothing of the arena."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.reading.section import whole_section
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.worker_side import saver as saver_module
from engine_adapters.vllm.worker_side.save_pieces import with_notes_that_fit
from engine_adapters.vllm.worker_side.saver import Saver
from kvstored_client import Client, LayerState, NewChunk, Reason, StateKind, StateLayout
from kvstored_client.testing import CallName
from kvstored_contract.limits import NOTE_BYTES_MAX, NOTES_BYTES_PER_CALL_MAX
from tests.engine_adapters.vllm.engine_client import ROOM_BYTES, EngineClient
from tests.kvstored_client.gate import Gate
from tests.support.waiting import wait_until

BLOCK_TOKENS, CHUNK_BLOCKS, LAYERS = 4, 2, 2
TOKEN_BYTES = 16 * 1024
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, TOKEN_BYTES),) * LAYERS,
    chunk_tokens=BLOCK_TOKENS * CHUNK_BLOCKS,
)
CHUNK_BYTES = whole_section(LAYOUT).region_bytes(1)
FITTING = ROOM_BYTES // CHUNK_BYTES


def order_of(chunk_count: int) -> SaveOrder:
    return SaveOrder(
        request_id="a",
        first_chunk=0,
        parent_key=b"",
        chain_keys=tuple(bytes([chunk]) * 32 for chunk in range(chunk_count)),
        block_ids=tuple(range(chunk_count * CHUNK_BLOCKS)),
    )


@pytest.fixture
def client() -> Iterator[EngineClient]:
    with EngineClient() as client:
        yield client


def saver_of(client: Client, **options: Any) -> Saver:
    block_count = (FITTING + 2) * CHUNK_BLOCKS
    cache = {
        f"layer{layer}": torch.zeros(block_count, BLOCK_TOKENS, TOKEN_BYTES // 4)
        for layer in range(LAYERS)
    }
    blocks = KvBlocks(cache, list(cache), copies=options.pop("copies", None))
    return Saver(client, LAYOUT, blocks, span_chunks=1, **options)


def settled(saver: Saver) -> dict[str, float]:
    wait_until(lambda: not saver.is_busy)
    return saver.take_counts()


def test_save_that_the_arena_cuts_holds_nothing_when_its_puts_are_answered(
    client: EngineClient,
) -> None:
    """The request still runs: nothing of what it saved waits for its end."""
    gate = Gate(client.store)
    saver = saver_of(client)
    saver.save([order_of(FITTING + 2)])
    assert client.free_bytes < CHUNK_BYTES
    gate.open()
    counts = settled(saver)
    assert counts["dropped_saves"] == 2
    assert counts["saved_tokens"] == FITTING * LAYOUT.chunk_tokens
    assert client.free_bytes == ROOM_BYTES
    saver.drain()


def test_save_that_is_refused_holds_nothing(client: EngineClient) -> None:
    client.store.faults.put_rejection = lambda _put, _chunk: Reason.STORE_FULL
    saver = saver_of(client)
    saver.save([order_of(2)])
    assert settled(saver) == {"dropped_saves": 2}
    assert client.free_bytes == ROOM_BYTES
    saver.drain()


def test_why_saves_are_dropped_is_said_once(
    client: EngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: an engine whose saves all came too late for the daemon gave a number, and no reason."""
    reasons = [Reason.DEADLINE, Reason.DEADLINE, Reason.STORE_FULL]
    client.store.faults.put_rejection = lambda put, _chunk: reasons[put]
    saver = saver_of(client)
    saver.save([order_of(len(reasons))])
    assert settled(saver) == {"dropped_saves": len(reasons)}
    client.store.faults.silent.add(CallName.PUT)
    saver.save([order_of(1)])
    assert settled(saver) == {"dropped_saves": 1}
    said = [line for line in caplog.messages if "a save is dropped" in line]
    for line, words in zip(said, ("DEADLINE", "STORE_FULL", "did not answer"), strict=True):
        assert words in line
    saver.drain()


def test_chunk_that_is_there_already_is_not_counted(client: EngineClient) -> None:
    saver = saver_of(client)
    saver.save([order_of(2)])
    assert settled(saver)["saved_tokens"] == 2 * LAYOUT.chunk_tokens
    saver.save([order_of(2)])
    assert settled(saver).get("saved_tokens", 0) == 0
    saver.drain()


def test_save_that_would_wait_behind_too_many_is_dropped(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saver_module, "QUEUED_MAX", 1)
    gate = Gate(client.store)
    saver = saver_of(client)
    saver.save([order_of(1)])
    wait_until(lambda: saver._queue.qsize() == 0)
    saver.save([order_of(3)])
    assert saver.take_counts() == {"dropped_saves": 2}
    gate.open()
    settled(saver)
    assert client.free_bytes == ROOM_BYTES
    saver.drain()


def test_memory_that_could_not_be_pinned_ended_all_saves(
    client: EngineClient, caplog: pytest.LogCaptureFixture
) -> None:
    class Unpinnable(HostCopies):
        def pin(self, memory: memoryview | None) -> None:
            raise RuntimeError("can't start new thread")

    saver = saver_of(client, copies=Unpinnable())
    saver.save([order_of(1)])
    assert settled(saver)["saved_tokens"] == LAYOUT.chunk_tokens
    assert len([line for line in caplog.messages if "is not pinned" in line]) == 1
    saver.drain()


def test_nothing_is_taken_without_a_daemon(client: EngineClient) -> None:
    client.store.kill()
    saver = saver_of(client)
    saver.save([order_of(1)])
    assert saver.take_counts() == {"dropped_saves": 1}
    assert client.free_bytes == ROOM_BYTES
    saver.drain()


def test_worker_that_is_refused_counts_why(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: nothing told an operator that one worker of many was off."""
    monkeypatch.setattr(saver_module, "LOOK_S", 0.001)
    client.store.faults.session_refusal = "no room for another arena"
    client.store.kill()
    client.store.start()
    saver = saver_of(client)
    wait_until(lambda: not saver.is_settled)
    counts = saver.take_counts()
    assert counts["disconnected_limit"] >= 1
    assert counts.keys() == {"disconnected_limit"}
    saver.drain()


class Check:
    """A check that has the first chunk fail."""

    def __init__(self) -> None:
        self.compared: list[tuple[int, tuple[int, ...]]] = []

    def compare(
        self, slices_of: Callable[[int], Tensor], chunk: int, block_ids: tuple[int, ...]
    ) -> None:
        assert slices_of(1).shape == (1, LAYOUT.slice_bytes(1))
        self.compared.append((chunk, block_ids))
        raise TypeError("norms of this model give pairs")


def test_states_that_cannot_be_restored_are_not_stored(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: whatever lay in a layer's input was stored, and each restoration gave other tokens."""
    told: list[str] = []
    warn = saver_module.LOGGER
    monkeypatch.setattr(warn, "warning", lambda text, *values: told.append(text % values))
    check = Check()
    given_up: list[bool] = []
    saver = saver_of(client, check=check, give_up=lambda: given_up.append(True))
    saver.save([order_of(2)])
    saver.save([order_of(1)])
    assert settled(saver) == {"dropped_saves": 3}
    assert client.free_bytes == ROOM_BYTES
    assert check.compared == [(0, (0, 1))]
    assert given_up == [True]
    (sentence,) = told
    assert "norms of this model give pairs" in sentence
    assert not client.store.chunks
    saver.drain()


def test_notes_go_with_their_chunks(client: EngineClient) -> None:
    saver = saver_of(client)
    saver.save([replace(order_of(2), notes=(b"first", b"second"))])
    settled(saver)
    assert {chunk.note for chunk in client.store.chunks.values()} == {b"first", b"second"}
    saver.drain()


def test_notes_that_one_put_cannot_take_are_left_out() -> None:
    """Else the daemon would refuse the chunks with them."""
    size, count = NOTE_BYTES_MAX, NOTES_BYTES_PER_CALL_MAX // NOTE_BYTES_MAX
    chunks = [NewChunk(key=bytes(32), token_count=1, note=bytes(size)) for _ in range(count + 1)]
    assert [len(chunk.note) for chunk in with_notes_that_fit(chunks)] == [*(size,) * count, 0]
