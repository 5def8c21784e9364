"""Caches as vLLM's own code makes them for GPUs: stored, wiped, loaded, compared.

vLLM 0.32 shows each layer as [blocks, heads, tokens, content] in one of six orders of memory, of
which FlashAttention and FlashInfer take the first two (NHD and HND) by themselves.
"""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("vllm.v1.kv_cache_layout", reason="needs vLLM 0.32: make test-vllm")

import torch
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheTensor,
    MLAAttentionSpec,
    compute_layout_strides,
)
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.worker.utils import allocate_kv_cache

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.device_copies.open_copies import open_copies
from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.vllm.blocks.block_layout import BlockShapeError
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks

BLOCKS, TOKENS, NAMES = 12, 32, ("layers.0", "layers.1", "layers.2")
SPECS = {
    "grouped heads": FullAttentionSpec(
        block_size=TOKENS, num_kv_heads=2, head_size=16, dtype=torch.bfloat16
    ),
    "float8": FullAttentionSpec(block_size=TOKENS, num_kv_heads=4, head_size=16, dtype=torch.uint8),
    "latent": MLAAttentionSpec(
        block_size=TOKENS, num_kv_heads=1, head_size=72, dtype=torch.bfloat16
    ),
}
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def caches_of(
    spec: Any, layout: KVCacheLayout, *, device: str = "cpu", kernel_tokens: int = TOKENS
) -> dict[str, torch.Tensor]:
    """The caches of three layers, of random bytes."""
    layer_stride, block_stride, *_ = compute_layout_strides(spec, BLOCKS, len(NAMES), layout)
    size = BLOCKS * len(NAMES) * spec.page_size_bytes
    config = KVCacheConfig(
        num_blocks=BLOCKS,
        kv_cache_tensors=[
            KVCacheTensor(
                size=size,
                layers=list(NAMES),
                layer_stride=layer_stride,
                block_stride=block_stride,
            )
        ],
        kv_cache_groups=[KVCacheGroupSpec(list(NAMES), spec)],
    )
    caches = allocate_kv_cache(config, torch.device(device), layout, [kernel_tokens])
    torch.manual_seed(3)
    memory = torch.empty(0, dtype=torch.uint8, device=device)
    memory.set_(next(iter(caches.values())).untyped_storage())
    memory.copy_(torch.randint(0, 100, memory.shape, dtype=torch.uint8))
    return caches


def copies_of(device: str) -> list[DeviceCopies]:
    if device == "cuda":
        return [open_copies(torch.device(device))]
    return [HostCopies(), DelayedCopies(delay_s=0.001)]


def stored(blocks: KvBlocks, ids: Sequence[int]) -> list[torch.Tensor]:
    """The bytes of some blocks, of each layer, in two chunks with a gap between them."""
    slices = []
    for layer in range(len(NAMES)):
        chunk_bytes = len(ids) // 2 * blocks.block_bytes(layer)
        slices.append(torch.zeros(2, chunk_bytes + 64, dtype=torch.uint8)[:, :chunk_bytes])
        blocks.gather(layer, ids, slices[-1]).wait()
    return slices


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", KVCacheLayout)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_blocks_come_back_as_they_were(spec: Any, layout: KVCacheLayout, device: str) -> None:
    for copies in copies_of(device):
        caches = caches_of(spec, layout, device=device)
        before = {name: cache.clone() for name, cache in caches.items()}
        blocks = KvBlocks(caches, NAMES, copies=copies, block_count=BLOCKS)
        assert blocks.block_bytes(0) == spec.page_size_bytes
        ids = (7, 2, 9, 4)
        slices = stored(blocks, ids)
        for cache in caches.values():
            cache[list(ids)] = 0
        for layer, parts in enumerate(slices):
            blocks.scatter(layer, ids, list(parts), after=copies.mark()).wait()
        for name, cache in caches.items():
            assert torch.equal(cache, before[name])


def test_what_is_stored_does_not_show_how_kernels_split_a_block() -> None:
    spec, layout = SPECS["grouped heads"], KVCacheLayout.LBNHC
    halves, whole = caches_of(spec, layout, kernel_tokens=TOKENS // 2), caches_of(spec, layout)
    assert len(halves["layers.0"]) == 2 * BLOCKS
    split = stored(KvBlocks(halves, NAMES, block_count=BLOCKS), (3, 1))
    for one, other in zip(split, stored(KvBlocks(whole, NAMES), (3, 1)), strict=True):
        assert torch.equal(one, other)


def test_split_blocks_that_would_show_it_are_named() -> None:
    halves = caches_of(SPECS["grouped heads"], KVCacheLayout.LBHNC, kernel_tokens=TOKENS // 2)
    with pytest.raises(BlockShapeError, match=r"layers\.0 is 2 blocks of the attention kernels"):
        KvBlocks(halves, NAMES, block_count=BLOCKS)


@pytest.mark.parametrize(
    "layout", [KVCacheLayout.LHBNC, *(one for one in KVCacheLayout if one.is_block_outermost)]
)
def test_vllm_splits_no_blocks_of_other_layouts(layout: KVCacheLayout) -> None:
    with pytest.raises(ValueError, match="does not store blocks as dense"):
        caches_of(SPECS["grouped heads"], layout, kernel_tokens=TOKENS // 2)
