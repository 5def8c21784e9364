"""Saves of a rank that stores some columns of every layer input (HCache, section 5)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.orders import SaveOrder
from engine_adapters.vllm.worker_side.saver import Saver
from kvstored_client import LayerState, Shard, StateKind, StateLayout
from tests.engine_adapters.vllm.engine_client import EngineClient
from tests.support.waiting import wait_until

BLOCK_TOKENS, CHUNK_BLOCKS, WIDTH, RANKS = 4, 2, 64, 4
CHUNK_TOKENS = BLOCK_TOKENS * CHUNK_BLOCKS
PART = WIDTH // RANKS
KINDS = (StateKind.HIDDEN, StateKind.KV, StateKind.HIDDEN)
BLOCK_IDS = (3, 1)
ORDER = SaveOrder(
    request_id="a", first_chunk=0, parent_key=b"", chain_keys=(b"k" * 32,), block_ids=BLOCK_IDS
)
KV = torch.randn(5, BLOCK_TOKENS, PART, generator=torch.Generator().manual_seed(1))
INPUTS = torch.randn(2, CHUNK_TOKENS, WIDTH, generator=torch.Generator().manual_seed(2))


class Check:
    """Notes what a rank would project."""

    def __init__(self) -> None:
        self.slices: list[Tensor] = []

    def compare(
        self, slices_of: Callable[[int], Tensor], chunk: int, block_ids: tuple[int, ...]
    ) -> None:
        assert (chunk, block_ids) == (0, BLOCK_IDS)
        self.slices = [slices_of(layer).clone() for layer in range(len(KINDS))]


@pytest.fixture
def client() -> Iterator[EngineClient]:
    with EngineClient() as client:
        yield client


def save(client: EngineClient, rank: int, check: Any) -> list[Tensor]:
    """The slices that a rank stores, in float32."""
    layout = StateLayout(
        model="m",
        dtype="float32",
        layers=tuple(LayerState(kind, 4 * PART) for kind in KINDS),
        chunk_tokens=CHUNK_TOKENS,
        shard=Shard(tensor_rank=rank, tensor_size=RANKS),
    )
    names = [f"layer{layer}" for layer in range(len(KINDS))]
    blocks = KvBlocks({name: KV.clone() for name in names}, names)
    rows = BlockRows(capacity=4, block_tokens=BLOCK_TOKENS)
    slots = [block * BLOCK_TOKENS + token for block in BLOCK_IDS for token in range(BLOCK_TOKENS)]
    rows.add(INPUTS, slots)
    saver = Saver(client, layout, blocks, span_chunks=1, rows=rows, check=check)
    saver.save([ORDER])
    wait_until(lambda: not saver.is_busy)
    saver.drain()
    (chunk,) = client.store.chunks.values()
    return [torch.frombuffer(bytearray(part), dtype=torch.float32) for part in chunk.slices]


@pytest.mark.parametrize("rank", range(RANKS))
def test_every_rank_stored_whole_layer_inputs(client: EngineClient, rank: int) -> None:
    """Bug: together they stored as many times the bytes as there are ranks."""
    first, own, last = save(client, rank, None)
    columns = slice(rank * PART, (rank + 1) * PART)
    assert torch.equal(first.view(CHUNK_TOKENS, PART), INPUTS[0][:, columns])
    assert torch.equal(last.view(CHUNK_TOKENS, PART), INPUTS[1][:, columns])
    assert torch.equal(own.view(CHUNK_BLOCKS, BLOCK_TOKENS, PART), KV[list(BLOCK_IDS)])


def test_the_first_chunk_is_tried_with_whole_inputs(client: EngineClient) -> None:
    """No rank waits for the others then: one of them may have no room for this save."""
    check = Check()
    save(client, 2, check)
    first, own, last = (part.view(torch.float32) for part in check.slices)
    assert torch.equal(first.view(CHUNK_TOKENS, WIDTH), INPUTS[0])
    assert torch.equal(last.view(CHUNK_TOKENS, WIDTH), INPUTS[1])
    assert torch.equal(own.view(CHUNK_BLOCKS, BLOCK_TOKENS, PART), KV[list(BLOCK_IDS)])
