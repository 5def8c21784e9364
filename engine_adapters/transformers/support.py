"""Which models the cache takes, and why it refuses the others."""

from collections.abc import Mapping
from functools import partial

from torch import nn
from torch.nn.modules import module as torch_module
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from kvstored_client import Rotary

TESTED_VERSIONS = ("5.19.0", "5.24.0")
"""Releases of transformers that the tests of this package passed with."""

TESTED_MODELS: Mapping[str, Rotary] = {
    "gpt2": Rotary.ABSENT,
    "gpt_neox": Rotary.ROTATED,
    "llama": Rotary.ROTATED,
    "mistral": Rotary.ROTATED,
    "opt": Rotary.ABSENT,
    "phi3": Rotary.ROTATED,
    "qwen2": Rotary.ROTATED,
    "qwen3": Rotary.ROTATED,
}
"""By ``config.model_type``, whether the keys that it caches are rotated. Others are refused: a
model whose states depend on more than the tokens before them would restore wrong ones."""

KNOWN_PACKAGES = frozenset({"torch", "transformers"})
"""Modules of others may depend on what is in no tensor, as which adapter is active."""

_KNOWN_HOOKS = KNOWN_PACKAGES | {__name__.partition(".")[0]}
"""Theirs look at what is computed, and change nothing of it; the last one is our own."""

FIXED_ROTATIONS = frozenset({"default", "linear", "llama3", "yarn"})
"""Kinds of rotary embedding that turn a position by the same angle whatever the length."""


def refusal_of(model: object) -> str:
    """Why the states of a model are not stored, as one clause; empty where they are."""
    if not isinstance(model, PreTrainedModel):
        return f"{type(model).__name__} is no PreTrainedModel"
    kind = model.config.model_type
    if kind not in TESTED_MODELS:
        return f"no test has seen a model of type {kind!r}"
    strange = {
        type(part).__name__ for part in model.modules() if _package(part) not in KNOWN_PACKAGES
    }
    if strange:
        return f"adapters or quantization change what it computes ({', '.join(sorted(strange))})"
    if model._compiled_call_impl is not None:  # noqa: SLF001 (torch has no other way to ask)
        return "a compiled model does not say which tokens it is given"
    return (
        hook_refusal(model)
        or _rotation_refusal(model)
        or _layer_refusal(model)
        or _tensor_refusal(model)
    )


def hook_refusal(model: nn.Module) -> str:
    """Why what a model computes now is not what its modules and tensors say; empty where it is.

    Hooks come and go: this holds for calls that begin now.
    """
    # torch has no other way to ask. One pass: every call of the model waits for it.
    hooks: list[object] = [
        *torch_module._global_forward_pre_hooks.values(),  # noqa: SLF001
        *torch_module._global_forward_hooks.values(),  # noqa: SLF001
    ]
    for part in model.modules():
        if "forward" in vars(part):
            return "a module of it has a forward that is not of its class"
        hooks += part._forward_pre_hooks.values()  # noqa: SLF001
        hooks += part._forward_hooks.values()  # noqa: SLF001
    strange = {name for hook in hooks if _root(name := _module_of(hook)) not in _KNOWN_HOOKS}
    if strange:
        return f"hooks of {', '.join(sorted(strange))} may change what it computes"
    return ""


def _module_of(hook: object) -> str:
    while isinstance(hook, partial):
        hook = hook.func
    return str(getattr(hook, "__module__", None) or type(hook).__module__)


def _root(module: str) -> str:
    return module.partition(".")[0]


def _package(module: nn.Module) -> str:
    return _root(type(module).__module__)


def _rotation_refusal(model: PreTrainedModel) -> str:
    parameters = getattr(model.config, "rope_parameters", None) or {}
    kind = parameters.get("rope_type", "default")
    if kind in FIXED_ROTATIONS:
        return ""
    return f"rotary embeddings of type {kind!r} depend on the length of the prompt"


def _layer_refusal(model: PreTrainedModel) -> str:
    layers = DynamicCache(config=model.config).layers
    if all(type(layer) is DynamicLayer for layer in layers):
        return ""
    return "a layer of it does not attend to every token before"


def _tensor_refusal(model: nn.Module) -> str:
    devices = {tensor.device for tensor in model.parameters()}
    if any(device.type == "meta" for device in devices):
        return "some of its weights are not in memory"
    # A hit brings the states of all layers to one device.
    return "its weights are on several devices" if len(devices) > 1 else ""
