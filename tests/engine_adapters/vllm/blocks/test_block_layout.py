"""Caches as vLLM's backends have them: which bytes of the memory are a block's, in which order."""

from math import prod

import pytest
import torch

from engine_adapters.vllm.blocks.block_layout import BlockLayout, BlockShapeError, block_layout
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks

BLOCKS, TOKENS, HEADS, SIZE = 6, 4, 2, 8
SHAPES = {
    "keys before values": ((2, BLOCKS, TOKENS, HEADS, SIZE), (0, 1, 2, 3, 4), 2),
    "keys beside values": ((BLOCKS, 2, TOKENS, HEADS, SIZE), (0, 1, 2, 3, 4), 1),
    "keys beside values, heads outside": ((BLOCKS, 2, TOKENS, HEADS, SIZE), (0, 1, 3, 2, 4), 1),
    "LBHNC": ((BLOCKS, HEADS, TOKENS, 2 * SIZE), (0, 1, 2, 3), 1),
    "LBNHC": ((BLOCKS, HEADS, TOKENS, 2 * SIZE), (0, 2, 1, 3), 1),
    "LHBNC": ((BLOCKS, HEADS, TOKENS, 2 * SIZE), (1, 0, 2, 3), HEADS),
    "a single latent": ((BLOCKS, TOKENS, SIZE), (0, 1, 2), 1),
}
"""The shape, the axes in the order of memory, and how many runs a block has."""


def cache_of(shape: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """All values are different."""
    physical = torch.arange(prod(shape), dtype=torch.int32).view([shape[axis] for axis in order])
    return physical.permute([order.index(axis) for axis in range(len(shape))])


@pytest.mark.parametrize(("shape", "order", "runs"), SHAPES.values(), ids=SHAPES.keys())
def test_a_block_is_its_bytes_in_the_order_of_memory(
    shape: tuple[int, ...], order: tuple[int, ...], runs: int
) -> None:
    cache = cache_of(shape, order)
    layout = block_layout(cache.shape, cache.stride(), item_bytes=4, block_count=BLOCKS, name="a")
    assert layout.sizes[0] == BLOCKS
    assert prod(layout.sizes[1:-1]) == runs
    assert layout.block_bytes == 4 * cache.numel() // BLOCKS
    blocks = KvBlocks({"a": cache}, ["a"], block_count=BLOCKS)
    axis = shape.index(BLOCKS)
    assert blocks.block_bytes(0) == layout.block_bytes
    slices = torch.zeros(2, layout.block_bytes, dtype=torch.uint8)
    blocks.gather(0, [4, 1], slices).wait()
    for place, block in enumerate((4, 1)):
        values = cache.select(axis, block).flatten()
        assert torch.equal(slices[place].view(torch.int32).sort().values, values.sort().values)
        assert torch.equal(slices[place].view(torch.int32), values.sort().values), (
            "memory order, as all values rise"
        )
    taken = blocks.take(0, [4, 1])
    assert torch.equal(taken.flatten(1), slices.view(torch.int32))
    before = cache.clone()
    cache.select(axis, 4).zero_()
    blocks.put(0, [4, 1], taken)
    assert torch.equal(cache, before)


def test_several_blocks_of_the_kernels_are_one_of_the_engines() -> None:
    """Where tokens lie outside of heads, so that it does not show how many."""
    whole = cache_of((BLOCKS, HEADS, TOKENS, SIZE), (0, 2, 1, 3))
    halves = cache_of((2 * BLOCKS, HEADS, TOKENS // 2, SIZE), (0, 2, 1, 3))
    layouts = [
        block_layout(cache.shape, cache.stride(), item_bytes=4, block_count=BLOCKS, name="a")
        for cache in (whole, halves)
    ]
    assert layouts[0] == layouts[1]


def test_blocks_of_one_head_may_be_split_as_well() -> None:
    halves = cache_of((2 * BLOCKS, 1, TOKENS // 2, SIZE), (0, 1, 2, 3))
    layout = block_layout(halves.shape, halves.stride(), item_bytes=4, block_count=BLOCKS, name="a")
    assert layout == BlockLayout((BLOCKS, TOKENS * SIZE * 4), (TOKENS * SIZE * 4, 1))


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((2 * BLOCKS, BLOCKS, SIZE), (0, 1, 2)),
        ((2 * BLOCKS, BLOCKS, TOKENS // 2, SIZE), (0, 2, 1, 3)),
    ],
    ids=["tokens", "heads"],
)
def test_as_many_tokens_or_heads_as_blocks_were_taken_for_these(
    shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    """Bug: where the kernels split blocks, so that a block had a token of each."""
    cache = cache_of(shape, order)
    layout = block_layout(cache.shape, cache.stride(), item_bytes=4, block_count=BLOCKS, name="a")
    block_bytes = 4 * cache.numel() // BLOCKS
    assert layout == BlockLayout((BLOCKS, block_bytes), (block_bytes, 1))


def test_split_blocks_with_heads_outside_of_tokens_are_named() -> None:
    """What is stored would depend on how the kernels split them, which no key says."""
    halves = cache_of((2 * BLOCKS, HEADS, TOKENS // 2, SIZE), (0, 1, 2, 3))
    with pytest.raises(BlockShapeError, match=r"block of a is 2 blocks.*--block-size to 2"):
        block_layout(halves.shape, halves.stride(), item_bytes=4, block_count=BLOCKS, name="a")


@pytest.mark.parametrize(
    ("shape", "strides", "word"),
    [
        ((5, 7, 4), (28, 4, 1), "no axis counts 6 blocks"),
        ((6, 4), (8, 2), "no runs of bytes"),
        ((6,), (1,), "no runs of bytes"),
    ],
)
def test_other_caches_are_named(
    shape: tuple[int, ...], strides: tuple[int, ...], word: str
) -> None:
    with pytest.raises(BlockShapeError, match=word):
        block_layout(shape, strides, item_bytes=2, block_count=6, name="a")


def test_wide_items_are_whole_numbers_of_everything() -> None:
    layout = BlockLayout((3, 2, 16), (64, 32, 1))
    assert layout.is_in(8)
    assert layout.in_items(8) == BlockLayout((3, 2, 2), (8, 4, 1))
    assert not BlockLayout((3, 2, 12), (64, 32, 1)).is_in(8)
    assert not BlockLayout((3, 2, 16), (64, 20, 1)).is_in(8)
