"""Layouts that mix layer inputs with keys and values, as the planner makes them."""

import torch
from torch import Tensor

from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.block_span import BlockSpan
from kvstored_client import LayerState, StateKind, StateLayout

BLOCK_TOKENS, CHUNK_BLOCKS, WIDTH, KV_BYTES = 4, 2, 8, 48
CHUNK_TOKENS = BLOCK_TOKENS * CHUNK_BLOCKS
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.HIDDEN, WIDTH * 4), LayerState(StateKind.KV, KV_BYTES)),
    chunk_tokens=CHUNK_TOKENS,
)


class Projected:
    """What was projected."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Tensor, list[int], list[int]]] = []

    def project(self, layer: int, inputs: Tensor, positions: Tensor, slots: Tensor) -> None:
        self.calls.append((layer, inputs.clone(), positions.tolist(), slots.tolist()))


def test_each_layer_is_brought_in_by_its_kind() -> None:
    cache = {
        name: torch.zeros(10, BLOCK_TOKENS, KV_BYTES // 4, dtype=torch.float32)
        for name in ("first", "second")
    }
    projected = Projected()
    rows = BlockRows(capacity=8, block_tokens=BLOCK_TOKENS)
    rows.add(torch.zeros(1, 2 * BLOCK_TOKENS, WIDTH), range(20, 28))
    filler = BlockFiller(
        KvBlocks(cache, ["first", "second"]),
        LAYOUT,
        block_tokens=BLOCK_TOKENS,
        dtype=torch.float32,
        projection=projected,
        rows=rows,
    )
    inputs = torch.arange(2 * CHUNK_TOKENS * WIDTH, dtype=torch.float32)
    states = torch.arange(2 * CHUNK_TOKENS * KV_BYTES // 4, dtype=torch.float32)
    # Slices take whole pages.
    slices = [
        torch.nn.functional.pad(part.view(torch.uint8).view(2, -1), (0, 64))[:, :-64]
        for part in (inputs, states)
    ]
    # The span begins with the second block of chunk 3 and ends with chunk 4.
    span = BlockSpan(first_block=7, block_ids=(5, 2, 8), chunk_blocks=CHUNK_BLOCKS)
    filler.fill(slices.__getitem__, 3, [span.copy_of(3), span.copy_of(4)])
    ((layer, inputs_given, positions, slots),) = projected.calls
    assert filler.needs_engine
    assert rows.take([5]) is None, "those of another request"
    assert rows.take([6]) is not None
    assert layer == 0
    assert torch.equal(inputs_given, inputs.view(-1, WIDTH)[BLOCK_TOKENS:])
    assert positions == list(range(3 * CHUNK_TOKENS + BLOCK_TOKENS, 5 * CHUNK_TOKENS))
    assert slots == [*range(20, 24), *range(8, 12), *range(32, 36)]
    assert not cache["first"].any()
    blocks = states.view(-1, BLOCK_TOKENS, KV_BYTES // 4)
    assert torch.equal(cache["second"][[5, 2, 8]], blocks[1:])


def test_without_layer_inputs_no_engine_is_needed() -> None:
    layout = StateLayout(
        model="m",
        dtype="float32",
        layers=(LayerState(StateKind.KV, KV_BYTES),),
        chunk_tokens=CHUNK_TOKENS,
    )
    blocks = KvBlocks({"first": torch.zeros(2, 4)}, ["first"])
    filler = BlockFiller(blocks, layout, block_tokens=BLOCK_TOKENS, dtype=torch.float32)
    assert not filler.needs_engine
