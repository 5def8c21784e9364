"""What a forward leaves behind, compiled or not."""

import pytest
import torch

from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs
from tests.engine_adapters.vllm.blocks.test_layer_hooks import ROWS, WIDTH, Model, compiled


def staged_of(dtype: torch.dtype = torch.float32) -> StagedInputs:
    return StagedInputs(2, 8, WIDTH, dtype=dtype, device=torch.device("cpu"))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_forward_leaves_the_inputs_of_its_layers(is_compiled: bool) -> None:
    torch._dynamo.reset()
    model, hooks = Model(), LayerHooks()
    hooks.attach(list(model.layers))
    hooks.staged = staged = staged_of()
    hooks.take = lambda *_: pytest.fail("who has staged inputs is not handed them, too")
    run = compiled(model) if is_compiled else model
    for factor in (1.0, 5.0):
        run(torch.arange(ROWS), torch.ones(ROWS, WIDTH) * factor)
        inputs = [staged.rows(layer, ROWS) for layer in range(2)]
        assert [float(rows.sum()) / rows.numel() for rows in inputs] == [factor, 3 * factor]
    assert not staged.is_broken


def test_addresses_stay_as_a_captured_graph_knows_them() -> None:
    staged = staged_of()
    before = staged.rows(1, 2).data_ptr()
    staged.write(1, torch.ones(5, WIDTH), torch.ones(5, WIDTH))
    assert staged.rows(1, 5).data_ptr() == before
    assert bool((staged.rows(1, 5) == 2).all())


def test_a_sum_is_rounded_as_the_model_rounds_it() -> None:
    staged = staged_of(torch.bfloat16)
    hidden, residual = torch.randn(2, 3, WIDTH, generator=torch.Generator().manual_seed(1))
    parts = hidden.bfloat16(), residual.bfloat16()
    staged.write(0, *parts)
    assert torch.equal(staged.rows(0, 3), parts[0] + parts[1])


@pytest.mark.parametrize("shape", [(9, WIDTH), (3, WIDTH + 1), (1, 3, WIDTH)])
def test_inputs_of_another_shape_are_noted_and_raise_nothing(shape: tuple[int, ...]) -> None:
    staged = staged_of()
    staged.write(0, torch.ones(shape), None)
    assert staged.is_broken
