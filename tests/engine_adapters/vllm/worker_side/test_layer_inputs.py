"""Layer inputs that forwards stage: what the engine has to do for them, and what it never meets."""

from typing import Any

import pytest
import torch

from engine_adapters.device_copies.host_copies import HostCopies
from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.blocks.staged_inputs import StagedInputs
from engine_adapters.vllm.worker_side.layer_inputs import LayerInputs

CPU = torch.device("cpu")
ATTENTION = {"layers.0": torch.arange(4)}


class Layers:
    """Of a vLLM that says where rows lie under ``name``."""

    def __init__(self, name: str = "layers.0") -> None:
        self._name = name

    def running_slots(self) -> None:
        """No forward has a context."""

    def slots_in(self, attention: dict[str, Any]) -> Any:
        return attention[self._name]


def gathering(hooks: LayerHooks, layers: Layers, device: torch.device = CPU) -> LayerInputs:
    inputs = LayerInputs(torch.nn.Linear(2, 2), hooks)
    inputs._layers = layers
    inputs.gather([0], device=device, copies=HostCopies(), capacity=4, block_tokens=4)
    return inputs


def staging_hooks() -> LayerHooks:
    hooks = LayerHooks()
    hooks.staged = StagedInputs(1, 8, 4, dtype=torch.float32, device=CPU)
    return hooks


def test_a_worker_can_hold_any_forward_while_rows_are_copied() -> None:
    hooks = staging_hooks()
    held: list[bool] = []
    inputs = gathering(hooks, Layers())
    assert inputs.are_staged
    assert hooks.hold is not None
    hooks.hold = lambda: held.append(True)
    hooks.before_forward()
    assert held == [True]
    inputs.close()


def test_a_vllm_that_names_layers_otherwise_ended_the_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Bug: what it says of attention was read within the step, whose errors end the engine."""
    inputs = gathering(staging_hooks(), Layers("other"))
    inputs.begin_forward()
    inputs.note_attention(ATTENTION)
    inputs.end_forward(has_failed=False, is_idle=False)
    inputs.note_attention(ATTENTION)
    assert not inputs.are_staged, "the worker need not hear of every forward any more"
    assert len([line for line in caplog.messages if "it is unknown where" in line]) == 1
    inputs.close()


def test_a_device_without_staged_inputs_is_refused() -> None:
    """A graph that it captures runs no hook in Python, and nothing would ever be saved."""
    with pytest.raises(LayerShapeError, match="stages no layer inputs"):
        gathering(LayerHooks(), Layers(), torch.device("cuda"))
