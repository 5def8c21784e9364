"""What names a model: any difference in what it computes must be a miss."""

import hashlib
import json
from collections.abc import Iterator
from itertools import chain
from weakref import WeakKeyDictionary

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

ADAPTER_VERSION = "kvstored.transformers.1"
"""Changes whenever the adapter stores other bytes for the same states."""

_VOLATILE = frozenset({"_name_or_path", "transformers_version", "architectures"})
"""Keys of a config that say where it came from, not what it is."""

Versions = tuple[tuple[int, int], ...]

_DIGESTS: WeakKeyDictionary[PreTrainedModel, tuple[Versions, str]] = WeakKeyDictionary()


def versions_of(model: PreTrainedModel) -> Versions:
    """Where each tensor lies and how often it was written to.

    A write that torch does not count (to ``parameter.data``, or in inference mode) does not show.
    """
    return tuple((tensor.data_ptr(), _writes(tensor)) for _, tensor in _tensors(model))


def fingerprint(model: PreTrainedModel, weights: str = "") -> str:
    """64 hex digits over the model's tensors, its config, its modules and the software.

    ``weights`` stands for the tensors where it is not empty. Else all are hashed, which takes about
    a second for each gigabyte, once for as long as ``versions_of`` stays as it is.
    """
    config = {
        name: value for name, value in model.config.to_dict().items() if name not in _VOLATILE
    }
    identity = {
        "adapter": ADAPTER_VERSION,
        "attention": model.config._attn_implementation,  # noqa: SLF001 (it has no other name)
        "config": config,
        "modules": [f"{type(part).__module__}.{type(part).__name__}" for part in model.modules()],
        "transformers": transformers.__version__,
        "weights": f"named {weights}" if weights else weights_digest(model),
    }
    text = json.dumps(identity, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def weights_digest(model: PreTrainedModel) -> str:
    """SHA-256 over the names, shapes and bytes of all parameters and buffers, in hex."""
    versions = versions_of(model)
    known = _DIGESTS.get(model)
    if known is not None and known[0] == versions:
        return known[1]
    digest = hashlib.sha256()
    for name, tensor in _tensors(model):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    found = digest.hexdigest()
    _DIGESTS[model] = (versions, found)
    return found


def _tensors(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Buffers that are not saved with the weights, too: the angles of rotation are such."""
    return chain(model.named_parameters(), model.named_buffers())


def _writes(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 (torch's name for it)
