"""The decoder layers of a model of the Llama family, whose inputs can be saved and projected."""

from typing import Any

from torch import nn


class LayerShapeError(ValueError):
    """A model whose layers are not built as the projection needs them; the message says how."""


def decoder_layers(model: nn.Module) -> list[Any]:
    """The layers of ``model.model``; raises LayerShapeError.

    Each is made of ``input_layernorm`` and ``self_attn``, which projects, rotates and then calls
    ``self_attn.attn(q, k, v)``.
    """
    inner: Any = getattr(model, "model", None)
    modules = list(getattr(inner, "layers", ()))
    for module in modules:
        attention = getattr(module, "self_attn", None)
        if not (hasattr(module, "input_layernorm") and hasattr(attention, "attn")):
            raise LayerShapeError(
                f"layers of {type(model).__name__} have no input_layernorm and self_attn.attn"
            )
    if not modules:
        raise LayerShapeError(f"{type(model).__name__} has no model.layers")
    return modules
