import os
import subprocess
import sys

import pytest
import torch

from engine_adapters.device_copies.host_copies import OVER
from engine_adapters.vllm.blocks.block_layout import BlockShapeError
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks

BLOCKS, HEADS, TOKENS = 6, 2, 3


def caches(width: int) -> dict[str, torch.Tensor]:
    """Caches whose bytes are all different from block to block."""
    shape = (BLOCKS, HEADS, TOKENS, width)
    return {
        name: torch.randint(0, 255, shape, dtype=torch.uint8, generator=torch.manual_seed(seed))
        for seed, name in enumerate(("a", "b"))
    }


@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("padding", [0, 64])
def test_blocks_go_out_and_in_as_they_are(width: int, padding: int) -> None:
    """Of eight bytes and multiples of it, and of odd sizes; into slices with and without a gap."""
    cache = caches(width)
    block_bytes = HEADS * TOKENS * width
    chunk_blocks = 2
    memory = torch.zeros(2, chunk_blocks * block_bytes + padding, dtype=torch.uint8)
    slices = memory[:, : chunk_blocks * block_bytes]
    blocks = KvBlocks(cache, ["a", "b"])
    blocks.gather(1, [5, 0, 3, 1], slices).wait()
    assert torch.equal(slices.flatten(), cache["b"][[5, 0, 3, 1]].flatten())
    assert not memory[:, chunk_blocks * block_bytes :].any()
    blocks.scatter(0, [2, 4], [slices[1].contiguous()], after=OVER).wait()
    assert torch.equal(cache["a"][[2, 4]], cache["b"][[3, 1]])


def test_cache_that_is_no_run_of_bytes_is_named() -> None:
    cache = torch.zeros(BLOCKS, TOKENS, 2 * HEADS)[:, :, ::2]
    with pytest.raises(BlockShapeError, match="of a are no runs of bytes"):
        KvBlocks({"a": cache}, ["a"])


def test_cache_elsewhere_is_named() -> None:
    with pytest.raises(BlockShapeError, match="is on meta"):
        KvBlocks({"a": torch.zeros(BLOCKS, 4, device="meta")}, ["a"])


SCATTER_BESIDE_BOUND_THREADS = """
import os, threading, torch
from engine_adapters.device_copies.host_copies import OVER
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
cache, source = torch.zeros(8, 1 << 17), torch.ones(4 << 19, dtype=torch.uint8)
blocks = KvBlocks({"a": cache}, ["a"])
def load():
    os.sched_setaffinity(0, CORES)
    blocks.scatter(0, [1, 2, 5, 6], [source], after=OVER)
    assert os.sched_getaffinity(0) == CORES, os.sched_getaffinity(0)
    print("stays")
thread = threading.Thread(target=load)
thread.start()
thread.join()
assert torch.get_num_threads() == 2
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_thread_that_loads_stays_unbound_when_blocks_are_large() -> None:
    """Bug: OpenMP bound the loader to the first computing core with its first large copy."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "2",
        "GOMP_CPU_AFFINITY": " ".join(map(str, cores)),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    script = f"CORES = {set(cores)}\n{SCATTER_BESIDE_BOUND_THREADS}"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "stays\n", done.stderr
