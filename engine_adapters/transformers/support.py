"""Which models the cache takes, and why it refuses the others."""

from collections.abc import Mapping

from torch import nn
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
    return _rotation_refusal(model) or _layer_refusal(model) or _tensor_refusal(model)


def _package(module: nn.Module) -> str:
    return type(module).__module__.partition(".")[0]


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
