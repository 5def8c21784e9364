"""The layer inputs of an engine's model: how they are gathered, and what projects them."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.vllm.blocks.block_filler import Projection
from engine_adapters.vllm.blocks.block_rows import BlockRows, GatheredRows
from engine_adapters.vllm.blocks.decoder_layers import LayerShapeError, decoder_layers
from engine_adapters.vllm.blocks.late_rows import LateRows
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks
from engine_adapters.vllm.worker_side.staged_forwards import StagedForwards

LOGGER = logging.getLogger("vllm.kvstored")


class LayerInputs:
    """Of one model with hooks on its layers. The engine's thread only.

    On a CPU the hooks hand the inputs over within the forward. On a GPU the forward stages them,
    because a captured graph runs no Python, and what is staged is copied out after it.
    """

    def __init__(self, model: nn.Module, hooks: LayerHooks) -> None:
        self._model = model
        self._hooks = hooks
        self._layers: Any = None
        self._forwards: StagedForwards | None = None
        self._late: LateRows | None = None
        self.rows: GatheredRows | None = None
        """Where they are gathered, after ``gather``."""

    @property
    def are_staged(self) -> bool:
        """Whether it has to hear of every forward, also of one that saves and loads nothing."""
        return self._forwards is not None

    def project(self, hidden: Sequence[int]) -> Projection:
        """What makes keys and values of the inputs of these layers; raises LayerShapeError."""
        decoder_layers(self._model)
        # The rest of this package can be had without vLLM.
        from engine_adapters.vllm.blocks.hidden_layers import HiddenLayers

        self._layers = layers = HiddenLayers(self._model, hidden)
        return layers

    def gather(
        self,
        hidden: Sequence[int],
        *,
        device: torch.device,
        copies: DeviceCopies,
        capacity: int,
        block_tokens: int,
    ) -> None:
        """Has the inputs of these layers gathered by blocks, at most ``capacity`` of them.

        Raises LayerShapeError where the device had no room to stage them.
        """
        rows = BlockRows(capacity=capacity, block_tokens=block_tokens)
        if (staged := self._hooks.staged) is not None:
            self.rows = self._late = LateRows(rows)
            self._forwards = StagedForwards(staged, hidden, copies=copies, rows=self._late)
            self._hooks.hold = self._forwards.hold
        elif device.type == "cpu":
            self.rows = rows
            self._layers.hand_out(self._hooks, rows.add, rows.clear)
        else:
            raise LayerShapeError("the worker stages no layer inputs")

    def begin_forward(self) -> None:
        """Before anything of a forward is launched."""
        if self._forwards is not None:
            self._forwards.begin()
            self._note(self._layers.running_slots)

    def note_attention(self, attention: Any) -> None:
        """What vLLM says of the attention of each layer, of a forward without a context."""
        if self._forwards is not None and isinstance(attention, dict):
            self._note(lambda: self._layers.slots_in(attention))

    def _note(self, slots_of: Callable[[], Tensor | None]) -> None:
        assert self._forwards is not None
        try:
            slots = slots_of()
            if slots is not None:
                self._forwards.note_slots(slots)
        except Exception:
            # An engine without its states goes on; one whose step raises does not.
            LOGGER.exception("kvstored: it is unknown where layer inputs belong, so none are saved")
            self.stop()

    def end_forward(self, *, has_failed: bool, is_idle: bool) -> None:
        """Everything of a forward was launched; an idle one computes nothing."""
        if self._forwards is not None:
            self._forwards.end(has_failed=has_failed, is_idle=is_idle)

    def stop(self) -> None:
        """Takes none any more."""
        self._hooks.take = None
        if self._forwards is not None:
            self._forwards.stop()
            self._forwards = None

    def close(self) -> None:
        """Ends the thread that gathers, after what it was asked for."""
        if self._late is not None:
            self._late.close()
