"""The decoder layers of a running model: their inputs, and keys and values made from them.

Imports vLLM.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from vllm.distributed.parallel_state import get_tp_group
from vllm.forward_context import get_forward_context, is_forward_context_available

from engine_adapters.vllm.blocks.decoder_layers import decoder_layers
from engine_adapters.vllm.blocks.layer_hooks import LayerHooks

LOGGER = logging.getLogger(__name__)
TakeRows = Callable[[Tensor, list[int]], None]


COLLECTIVES = (
    "all_gather",
    "all_gatherv",
    "all_reduce",
    "broadcast",
    "gather",
    "reduce_scatter",
    "reduce_scatterv",
)
"""What a model's modules may call on the group of tensor-parallel ranks."""


class _CutOffError(Exception):
    """Ends a layer's own attention module where the attention itself would begin."""


class CollectiveError(RuntimeError):
    """A module talks to the other ranks before the attention: it cannot be projected here."""


@contextmanager
def without_collectives() -> Iterator[None]:
    """Within it a call to other ranks raises CollectiveError.

    A rank projects when nobody else does, or fails before others do: they would wait for ever, or
    take its call for another one.
    """
    group = get_tp_group()
    if group.world_size == 1:
        yield
        return

    def refuse(*arguments: object, **named: object) -> None:
        del arguments, named
        raise CollectiveError("its attention needs other ranks for keys and values")

    # Attributes of the instance hide the methods of its class.
    for name in COLLECTIVES:
        setattr(group, name, refuse)
    try:
        yield
    finally:
        for name in COLLECTIVES:
            delattr(group, name)


class HiddenLayers:
    """The layers of a model of the Llama family. The engine's thread only.

    Every layer is made of ``input_layernorm`` and ``self_attn``, which projects, rotates and
    then calls ``self_attn.attn(q, k, v)``. ``layers`` are those whose inputs are wanted.
    """

    def __init__(self, model: nn.Module, layers: Sequence[int]) -> None:
        self._modules = decoder_layers(model)
        self._layers = list(layers)
        self._wanted = frozenset(layers)
        self._inputs: dict[int, Tensor] = {}
        self._forward: object = None
        """The forward that the inputs are of."""
        self._is_broken = False

    def hand_out(
        self, hooks: LayerHooks, take_rows: TakeRows, forget_rows: Callable[[], None]
    ) -> None:
        """Has the inputs of every forward taken.

        ``take_rows`` is called once a forward with the inputs of the wanted layers [layer_count,
        row_count, hidden_size] and the slots of the rows; ``forget_rows`` when some cannot be
        taken, and neither is called again.
        """
        self._take_rows = take_rows
        self._forget_rows = forget_rows
        hooks.take = self._note_input

    def _note_input(self, layer: int, hidden: Tensor, residual: Tensor | None) -> None:
        if self._is_broken or layer not in self._wanted:
            return
        try:
            self._take_input(layer, hidden, residual)
        except Exception:
            # An engine without its states goes on; one whose forward raises does not.
            LOGGER.exception("kvstored: layer inputs cannot be taken, so nothing more is saved")
            self._is_broken = True
            self._inputs.clear()
            self._forget_rows()

    def _take_input(self, layer: int, hidden: Tensor, residual: Tensor | None) -> None:
        forward = _running_forward()
        if forward is None:
            # Warming up: nothing of it is in the cache.
            return
        if self._forward is not forward:
            self._forward = forward
            self._inputs.clear()
        self._inputs[layer] = hidden.clone() if residual is None else hidden + residual
        if len(self._inputs) == len(self._layers):
            slots = self._slots(forward)
            rows = torch.stack([self._inputs[one][: len(slots)] for one in self._layers])
            self._inputs.clear()
            self._forward = None
            self._take_rows(rows, slots)

    def _slots(self, forward: Any) -> list[int]:
        """The places in the cache of the rows that run."""
        slots: list[int] = self.slots_in(forward.attn_metadata).tolist()
        return slots

    def slots_in(self, attention: Any) -> Tensor:
        """The same as a tensor of the device, by what a forward says of the attention of layers."""
        slots: Tensor = attention[self._modules[0].self_attn.attn.layer_name].slot_mapping
        return slots

    def running_slots(self) -> Tensor | None:
        """The same of the forward that runs; None where its rows have no places in the cache."""
        forward = _running_forward()
        return None if forward is None else self.slots_in(forward.attn_metadata)

    def project(self, layer: int, inputs: Tensor, positions: Tensor, slots: Tensor) -> None:
        """Writes keys and values made from a layer's inputs into the cache (HCache, section 3).

        ``inputs`` [token_count, hidden_size], ``positions`` and ``slots`` [token_count]. The
        layer's own modules normalise, project and rotate; only the attention is left out.
        """
        module = self._modules[layer]
        attention = module.self_attn.attn
        keys, values = _keys_values(module, attention, inputs, positions)
        shape = (len(inputs), attention.num_kv_heads, attention.head_size)
        attention.impl.do_kv_cache_update(
            attention, keys.view(shape), values.view(shape), attention.kv_cache, slots
        )


def _running_forward() -> Any:
    """The forward that runs; None where its rows have no places in the cache."""
    if not is_forward_context_available():
        return None
    forward = get_forward_context()
    return forward if isinstance(forward.attn_metadata, dict) else None


def _keys_values(
    module: Any, attention: Any, inputs: Tensor, positions: Tensor
) -> tuple[Tensor, Tensor]:
    caught: list[Tensor] = []

    def cut(query: Tensor, keys: Tensor, values: Tensor, *rest: Any, **named: Any) -> Tensor:
        del query, rest, named
        caught.extend((keys, values))
        raise _CutOffError

    # An attribute of the instance hides the method of its class.
    attention.forward = cut
    try:
        with torch.inference_mode(), without_collectives():
            module.self_attn(positions=positions, hidden_states=module.input_layernorm(inputs))
    except _CutOffError:
        pass
    finally:
        del attention.forward
    keys, values = caught
    return keys, values
