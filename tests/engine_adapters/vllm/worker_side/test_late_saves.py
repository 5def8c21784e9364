"""Saves of layer inputs that are not on the host yet when they are ordered."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.blocks.late_rows import LateRows
from engine_adapters.vllm.identity.chunk_keys import rank_key
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.worker_side.save_pieces import runs_of
from engine_adapters.vllm.worker_side.saver import Saver
from kvstored_client import LayerState, StateKind, StateLayout
from tests.engine_adapters.vllm.engine_client import ROOM_BYTES, EngineClient
from tests.support.waiting import PATIENCE_S, wait_until

BLOCK_TOKENS, WIDTH, CHUNKS = 4, 16, 4
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.HIDDEN, 4 * WIDTH), LayerState(StateKind.KV, 4 * WIDTH)),
    chunk_tokens=BLOCK_TOKENS,
)
KEYS = tuple(bytes([chunk + 1]) * 32 for chunk in range(CHUNKS))
ORDER = SaveOrder(
    request_id="a",
    first_chunk=0,
    parent_key=b"",
    chain_keys=KEYS,
    block_ids=tuple(range(CHUNKS)),
)
MISSED = 1
"""The chunk of which a row was missed."""


class Lab:
    """A saver whose rows come when a test lets them."""

    def __init__(self, check: Any = None) -> None:
        self.client = EngineClient()
        generator = torch.Generator().manual_seed(1)
        self.kv = torch.randn(CHUNKS, BLOCK_TOKENS, WIDTH, generator=generator)
        self.inputs = torch.randn(1, CHUNKS * BLOCK_TOKENS, WIDTH, generator=generator)
        self.cache = {"hidden": torch.zeros_like(self.kv), "kv": self.kv.clone()}
        self.late = LateRows(BlockRows(capacity=8, block_tokens=BLOCK_TOKENS))
        self.come = threading.Event()
        self.saver = Saver(
            self.client,
            LAYOUT,
            KvBlocks(self.cache, list(self.cache)),
            span_chunks=CHUNKS,
            rows=self.late,
            check=check,
        )
        self.late.use(self._add)

    def _add(self, rows: BlockRows) -> None:
        assert self.come.wait(PATIENCE_S)
        slots = [slot for slot in range(CHUNKS * BLOCK_TOKENS) if slot != MISSED * BLOCK_TOKENS]
        rows.add(self.inputs[:, slots], slots)

    def stored(self, chunk: int) -> list[Tensor]:
        slices = self.client.store.chunks[rank_key(KEYS[chunk], LAYOUT.layout_id)].slices
        return [torch.frombuffer(bytearray(part), dtype=torch.float32) for part in slices]

    def close(self) -> None:
        self.saver.drain()
        self.late.close()
        self.client.close()


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.close()


def test_what_was_gathered_of_a_save_is_stored_when_it_has_come(lab: Lab) -> None:
    """Blocks are copied at once, because the engine may overwrite them."""
    lab.saver.save([ORDER])
    lab.cache["kv"].fill_(-1.0)
    assert lab.saver.is_busy
    assert not lab.client.store.chunks
    lab.come.set()
    wait_until(lambda: not lab.saver.is_busy)
    kept = [chunk for chunk in range(CHUNKS) if chunk != MISSED]
    assert len(lab.client.store.chunks) == len(kept)
    for chunk in kept:
        inputs, own = lab.stored(chunk)
        tokens = slice(chunk * BLOCK_TOKENS, (chunk + 1) * BLOCK_TOKENS)
        assert torch.equal(inputs, lab.inputs[0][tokens].flatten())
        assert torch.equal(own, lab.kv[chunk].flatten())
    assert lab.saver.take_counts() == {
        "dropped_saves": 1,
        "saved_tokens": len(kept) * BLOCK_TOKENS,
    }
    assert lab.client.free_bytes == ROOM_BYTES


class Check:
    """Notes who compares what."""

    def __init__(self, error: Exception | None = None) -> None:
        self.threads: list[str] = []
        self.inputs: list[Tensor] = []
        self._error = error

    def compare(
        self, slices_of: Callable[[int], Tensor], chunk: int, block_ids: tuple[int, ...]
    ) -> None:
        self.threads.append(threading.current_thread().name)
        assert block_ids == (chunk,)
        self.inputs.append(slices_of(0)[0].clone())
        if self._error is not None:
            raise self._error


@pytest.mark.parametrize("error", [None, ValueError("another model")])
def test_the_first_save_is_tried_by_the_engine_when_its_rows_have_come(
    error: Exception | None,
) -> None:
    """The model belongs to the engine's thread."""
    check = Check(error)
    lab = Lab(check)
    threading.Timer(0.02, lab.come.set).start()
    lab.saver.save([ORDER])
    assert check.threads == [threading.current_thread().name]
    (inputs,) = check.inputs
    assert torch.equal(inputs.view(torch.float32), lab.inputs[0][:BLOCK_TOKENS].flatten())
    wait_until(lambda: not lab.saver.is_busy)
    assert len(lab.client.store.chunks) == (CHUNKS - 1 if error is None else 0)
    dropped = 1 if error is None else CHUNKS
    assert lab.saver.take_counts()["dropped_saves"] == dropped
    assert lab.client.free_bytes == ROOM_BYTES
    lab.close()


def test_a_first_save_of_which_nothing_is_complete_tried_nothing() -> None:
    """And the next one is tried."""
    check = Check()
    lab = Lab(check)
    lab.come.set()
    chunk = slice(MISSED, MISSED + 1)
    lab.saver.save([replace(ORDER, chain_keys=KEYS[chunk], block_ids=ORDER.block_ids[chunk])])
    assert check.threads == []
    lab.saver.save([replace(ORDER, chain_keys=KEYS[:1], block_ids=ORDER.block_ids[:1])])
    assert len(check.threads) == 1
    wait_until(lambda: not lab.saver.is_busy)
    assert len(lab.client.store.chunks) == 1
    lab.close()


@pytest.mark.parametrize(
    ("places", "runs"),
    [
        ([], []),
        ([0], [range(1)]),
        ([0, 1, 3], [range(2), range(3, 4)]),
        ([2, 4, 5], [range(2, 3), range(4, 6)]),
    ],
)
def test_places_that_follow_each_other_are_put_together(
    places: list[int], runs: list[range]
) -> None:
    assert list(runs_of(places)) == runs
