"""Layouts that mix layer inputs with keys and values, as the planner makes them."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.vllm.blocks.block_filler import BlockFiller
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.messages.linked_span import LinkedSpan
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


@pytest.mark.parametrize("copies", [HostCopies(), DelayedCopies(delay_s=0.002)])
def test_each_layer_is_brought_in_by_its_kind(copies: DeviceCopies) -> None:
    cache = {
        name: torch.zeros(10, BLOCK_TOKENS, KV_BYTES // 4, dtype=torch.float32)
        for name in ("first", "second")
    }
    projected = Projected()
    rows = BlockRows(capacity=8, block_tokens=BLOCK_TOKENS)
    rows.add(torch.zeros(1, 2 * BLOCK_TOKENS, WIDTH), range(20, 28))
    filler = BlockFiller(
        KvBlocks(cache, ["first", "second"], copies=copies),
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
    chunks = [span.copy_of(4), span.copy_of(3)]
    filler.fill(slices.__getitem__, 3, chunks, after=filler.mark()).wait()
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


def test_chunks_of_entries_go_to_any_position() -> None:
    cache = {"first": torch.zeros(10, BLOCK_TOKENS, 2, dtype=torch.float32)}
    projected = Projected()
    filler = BlockFiller(
        KvBlocks(cache, ["first"], copies=HostCopies()),
        replace(LAYOUT, layers=LAYOUT.layers[:1]),
        block_tokens=BLOCK_TOKENS,
        dtype=torch.float32,
        projection=projected,
    )
    inputs = torch.arange(2 * CHUNK_TOKENS * WIDTH, dtype=torch.float32)
    span = LinkedSpan(
        first_tokens=(3, 12),
        block_ids=(9, 5, 2, 8, 1),
        chunk_blocks=CHUNK_BLOCKS,
        block_tokens=BLOCK_TOKENS,
    )
    slices = inputs.view(torch.uint8).view(2, -1)
    copies = [span.copy_of(chunk) for chunk in span.chunks]
    filler.fill(lambda _: slices, 0, copies, after=filler.mark()).wait()
    ((_, given, positions, slots),) = projected.calls
    assert torch.equal(given, inputs.view(-1, WIDTH))
    assert positions == [*range(3, 11), *range(12, 20)]
    assert slots == [39, *range(20, 24), *range(8, 11), *range(32, 36), *range(4, 8)]


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
    assert filler.chunks_at_once == 1


class Broken(DelayedCopies):
    """Has no memory for the second layer."""

    def __init__(self) -> None:
        super().__init__(delay_s=0.01)
        self.landings: list[Landing] = []

    def scatter(
        self, parts: Sequence[Tensor], blocks: Tensor, block_ids: Sequence[int], *, after: Landing
    ) -> Landing:
        if self.landings:
            raise torch.OutOfMemoryError("no memory")
        self.landings.append(super().scatter(parts, blocks, block_ids, after=after))
        return self.landings[0]


def test_what_was_begun_has_ended_when_a_layer_cannot_be_filled() -> None:
    """Its region is given back then."""
    layout = replace(LAYOUT, layers=(LayerState(StateKind.KV, KV_BYTES),) * 2)
    cache = {name: torch.zeros(4, BLOCK_TOKENS, KV_BYTES // 4) for name in ("first", "second")}
    copies = Broken()
    blocks = KvBlocks(cache, list(cache), copies=copies)
    filler = BlockFiller(blocks, layout, block_tokens=BLOCK_TOKENS, dtype=torch.float32)
    assert filler.chunks_at_once > 1
    slices = torch.zeros(1, CHUNK_TOKENS * KV_BYTES, dtype=torch.uint8)
    span = BlockSpan(first_block=0, block_ids=(1, 2), chunk_blocks=CHUNK_BLOCKS)
    with pytest.raises(torch.OutOfMemoryError):
        filler.fill(lambda layer: slices, 0, [span.copy_of(0)], after=filler.mark())
    assert [landing.is_over for landing in copies.landings] == [True]
