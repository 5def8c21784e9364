"""Layer inputs of forwards that a CUDA graph replays: no Python runs in them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from engine_adapters.device_copies.cuda_copies import CudaCopies
from engine_adapters.vllm.blocks.block_rows import BlockRows
from engine_adapters.vllm.blocks.late_rows import LateRows
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs
from engine_adapters.vllm.worker_side.staged_forwards import HOST_ROOMS, StagedForwards
from tests.engine_adapters.vllm.blocks.test_layer_hooks import WIDTH, Model, compiled
from tests.support.waiting import PATIENCE_S, wait_until

BLOCK_TOKENS, PADDED_ROWS, REPLAYS = 4, 6, 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.gpu
@pytest.mark.parametrize("prepared", [lambda model: model, compiled])
def test_a_replayed_forward_leaves_the_inputs_of_its_layers(
    prepared: Callable[[nn.Module], Any],
) -> None:
    torch._dynamo.reset()
    device = torch.device("cuda")
    model, hooks = Model().to(device), LayerHooks()
    hooks.attach(list(model.layers), device=device)
    hooks.staged = staged = StagedInputs(2, PADDED_ROWS, WIDTH, dtype=torch.bfloat16, device=device)
    run = prepared(model)
    hidden = torch.ones(PADDED_ROWS, WIDTH, dtype=torch.bfloat16, device=device)
    positions = torch.arange(PADDED_ROWS, device=device)
    graph = torch.cuda.CUDAGraph()
    run(positions, hidden)
    with torch.cuda.graph(graph):
        run(positions, hidden)
    late = LateRows(BlockRows(capacity=REPLAYS, block_tokens=BLOCK_TOKENS))
    forwards = StagedForwards(staged, (0, 1), copies=CudaCopies(device), rows=late)
    answers: list[list[torch.Tensor] | None] = []
    is_done = threading.Event()

    def take(rows: BlockRows) -> None:
        answers.extend(rows.take([block]) for block in range(REPLAYS))
        is_done.set()

    slots = torch.empty(PADDED_ROWS, dtype=torch.int64, device=device)
    for block in range(REPLAYS):
        slots.fill_(-1)
        slots[:BLOCK_TOKENS] = torch.arange(BLOCK_TOKENS, device=device) + block * BLOCK_TOKENS
        hidden.fill_(block + 1)
        forwards.begin()
        forwards.note_slots(slots)
        graph.replay()
        forwards.end(has_failed=False, is_idle=False)
        if block % HOST_ROOMS == HOST_ROOMS - 1:
            wait_until(lambda: forwards._rooms.qsize() == HOST_ROOMS)
    late.use(take)
    assert is_done.wait(PATIENCE_S)
    late.close()
    for block, taken in enumerate(answers):
        assert taken is not None
        (rows,) = taken
        assert bool((rows[0] == block + 1).all())
        assert bool((rows[1] == 3 * (block + 1)).all())
