"""Hooks that hand out the inputs of a model's decoder layers, in compiled models too."""

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from engine_adapters.vllm.blocks.staged_inputs import StagedInputs

Take = Callable[[int, Tensor, Tensor | None], None]
"""Gets the number of a layer, its hidden states [row_count, hidden_size], and the residual."""

_HOOKS: WeakValueDictionary[int, "LayerHooks"] = WeakValueDictionary()


@torch.library.custom_op("kvstored::note_input", mutates_args=("marker",))
def note_input(
    hidden: Tensor, residual: Tensor | None, marker: Tensor, engine: int, layer: int
) -> None:
    """Hands out one input.

    A compiler looks into no operator, and keeps one that changes something: this one is said to
    change ``marker``.
    """
    del marker
    _hand_out(engine, layer, hidden, residual)


@note_input.register_fake
def _note_nothing(
    hidden: Tensor, residual: Tensor | None, marker: Tensor, engine: int, layer: int
) -> None:
    del hidden, residual, marker, engine, layer


class LayerHooks:
    """Hooks of one engine of this process. They have to be there before the model is compiled.

    ``number`` tells engines apart. It is compiled into the model, so it has to be part of what
    vLLM keeps compiled models under. The engine's thread only.
    """

    def __init__(self) -> None:
        self.number = next(number for number in count() if number not in _HOOKS)
        self.take: Take | None = None
        """Gets every input of every layer from now on; None: nobody wants them."""
        self.staged: StagedInputs | None = None
        """Where forwards leave all inputs instead: not to be changed once a graph is captured."""
        self.hold: Callable[[], None] | None = None
        """Has what is launched next wait until nothing reads ``staged`` any more."""
        _HOOKS[self.number] = self

    def attach(self, layers: list[Any], *, device: torch.device | None = None) -> None:
        """Hooks ``layer(positions, hidden_states, residual)`` of a model, in its order.

        ``device`` is the one that it runs on.
        """
        # One for all: what changes the same tensor keeps its order.
        marker = torch.zeros(1, device=device)
        for layer, module in enumerate(layers):
            module.register_buffer("kvstored_marker", marker, persistent=False)
            module.register_forward_pre_hook(_hook(self.number, layer), with_kwargs=True)

    def before_forward(self) -> None:
        """To be called before every forward, also one that computes nothing for anybody."""
        if self.hold is not None:
            self.hold()


def _hand_out(engine: int, layer: int, hidden: Any, residual: Any) -> None:
    hooks = _HOOKS.get(engine)
    if hooks is None:
        return
    if hooks.staged is not None:
        hooks.staged.write(layer, hidden, residual)
    elif hooks.take is not None:
        hooks.take(layer, hidden, residual)


def _hook(engine: int, layer: int) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
    def note(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        _, hidden, residual, *_ = (*arguments, None, None, None)
        hidden = named.get("hidden_states", hidden)
        residual = named.get("residual", residual)
        if torch.compiler.is_compiling():
            marker: Any = module.kvstored_marker
            note_input(hidden, residual, marker, engine, layer)
        else:
            _hand_out(engine, layer, hidden, residual)

    return note
