"""Models whose layers look like Llama's and are not."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from engine_adapters.device_copies.host_copies import OVER
from engine_adapters.device_copies.landing import Landing
from engine_adapters.vllm.blocks.kv_blocks import KvBlocks
from engine_adapters.vllm.blocks.projection_check import ProjectionCheck, ProjectionError
from kvstored_client import LayerState, StateKind, StateLayout

BLOCKS, CHUNK = (3, 1), 4
LAYOUT = StateLayout(
    model="m",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 64), LayerState(StateKind.HIDDEN, 32)),
    chunk_tokens=8,
)


class Filled:
    """What is projected is what ``change`` makes of what was computed."""

    def __init__(self, cache: Tensor, change: Callable[[Tensor], Tensor]) -> None:
        self._cache, self._change = cache, change
        self.copies: list[Any] = []

    def fill(
        self,
        slices_of: Callable[[int], Tensor],
        first_chunk: int,
        copies: Sequence[Any],
        *,
        after: Landing,
    ) -> Landing:
        assert after.is_over
        del slices_of
        self.copies += [(first_chunk, *copy) for copy in copies]
        self._cache[list(BLOCKS)] = self._change(self._cache[list(BLOCKS)])
        return OVER

    def mark(self) -> Landing:
        return OVER


def caches(dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(1)
    if dtype is torch.uint8:
        return {name: torch.randint(256, (5, 2, 4, 8), dtype=dtype) for name in ("kv", "hidden")}
    return {name: torch.randn(5, 2, 4, 8).to(dtype) for name in ("kv", "hidden")}


def compare(dtype: torch.dtype, change: Callable[[Tensor], Tensor]) -> Filled:
    cache = caches(dtype)
    filled = Filled(cache["hidden"], change)
    check = ProjectionCheck(KvBlocks(cache, list(cache)), cast("Any", filled), LAYOUT)
    try:
        check.compare(lambda layer: cache["kv"], CHUNK, BLOCKS)
    finally:
        for name, before in caches(dtype).items():
            assert torch.equal(cache[name], before), "the engine goes on with its own"
    return filled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_differs_by_rounding_passes(dtype: torch.dtype) -> None:
    filled = compare(dtype, lambda computed: computed * 1.005)
    assert filled.copies == [(CHUNK, CHUNK, 0, 2, BLOCKS, None)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_and_values_of_other_inputs_do_not_pass(dtype: torch.dtype) -> None:
    """Bug: layers that add no residual were restored from inputs that they never had."""
    with pytest.raises(ProjectionError, match="inputs of layer 1"):
        compare(dtype, lambda computed: computed + 0.5 * computed.flip(0))


def test_bytes_are_compared_where_the_cache_has_no_numbers() -> None:
    compare(torch.uint8, lambda computed: computed)
    with pytest.raises(ProjectionError, match="inputs of layer 1"):
        compare(torch.uint8, lambda computed: computed + 1)


def test_model_that_raises_has_its_blocks_back() -> None:
    def breaks(computed: Tensor) -> Tensor:
        raise TypeError(f"no {computed.dtype} here")

    with pytest.raises(TypeError, match="here"):
        compare(torch.float32, breaks)
