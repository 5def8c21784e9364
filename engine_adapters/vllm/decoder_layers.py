"""The decoder layers of a model of the Llama family, whose inputs can be saved and projected."""

from typing import Any

from torch import nn


class LayerShapeError(ValueError):
    """A model whose layers are not built as the projection needs them; the message says how."""


ALONE = frozenset({"attn", "o_proj", "qkv_proj", "rotary_emb"})
"""Parts of an attention that a rank uses without the others."""


def refuse_collectives(modules: list[Any]) -> None:
    """Raises LayerShapeError where projecting may need all ranks of a group.

    Ranks project when their chunks have come, each for itself: one that waited for the others
    would wait for good.
    """
    for module in modules:
        if others := {name for name, _ in module.self_attn.named_children()} - ALONE:
            raise LayerShapeError(
                f"with tensor parallelism {', '.join(sorted(others))} may need all ranks"
            )


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
