from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine_adapters.vllm.blocks.layer_hooks import LayerHooks

ROWS, WIDTH = 3, 4


class Layer(nn.Module):
    def forward(
        self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        del positions
        total = hidden_states if residual is None else hidden_states + residual
        return total * 2, total


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])

    def forward(self, positions: Tensor, hidden: Tensor) -> Tensor:
        residual = None
        for number, layer in enumerate(self.layers):
            if number:
                hidden, residual = layer(positions, hidden, residual=residual)
            else:
                hidden, residual = layer(positions, hidden_states=hidden, residual=residual)
        return hidden


def compiled(model: nn.Module) -> Callable[..., Any]:
    """Traced without a gap, and what has no effect is removed; as vLLM does."""
    return torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("prepared", [lambda model: model, compiled])
def test_inputs_are_handed_out_in_order(prepared: Callable[[nn.Module], Any]) -> None:
    torch._dynamo.reset()
    model, hooks = Model(), LayerHooks()
    hooks.attach(list(model.layers))
    run = prepared(model)
    taken: list[tuple[int, Tensor]] = []

    def take(layer: int, hidden: Tensor, residual: Tensor | None) -> None:
        taken.append((layer, hidden if residual is None else hidden + residual))

    hidden = torch.ones(ROWS, WIDTH)
    run(torch.arange(ROWS), hidden)
    hooks.take = take
    run(torch.arange(ROWS), hidden)
    run(torch.arange(ROWS), hidden * 5)
    assert [layer for layer, _ in taken] == [0, 1, 0, 1]
    sums = [float(tensor[0, 0]) for _, tensor in taken]
    assert sums == [1.0, 3.0, 5.0, 15.0]
    hooks.take = None
    run(torch.arange(ROWS), hidden)
    assert len(taken) == 4


def test_engines_of_one_process_are_apart() -> None:
    one, other = LayerHooks(), LayerHooks()
    taken: list[int] = []
    one.take = lambda layer, *_: taken.append(layer)
    model = Model()
    other.attach(list(model.layers))
    model(torch.arange(ROWS), torch.ones(ROWS, WIDTH))
    assert taken == []
    assert one.number != other.number
