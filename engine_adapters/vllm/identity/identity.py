"""What the bytes of a block depend on, besides the request. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

ADAPTER_VERSION = "kvstored.vllm.1"
"""Changes whenever the adapter stores other bytes for the same states."""

_VOLATILE = frozenset({"_name_or_path", "transformers_version", "architectures_source"})
"""Keys of a model's config that say where it came from, not what it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIdentity:
    """Everything that makes the states of two engines differ.

    ``weights`` identifies them: a revision or a digest. ``model_config`` is the checkpoint's
    own, with overrides applied. ``backend`` names the attention backend with its block layout,
    ``instruction_set`` what that layout was made for, ``kv_dtype`` the dtype of the cache.
    ``kv_heads`` and ``head_size`` are those of one rank. ``rotary_limit`` is the longest prompt
    where rotation depends on it, and 0 elsewhere; ``media`` what is done to images and the like
    before the model has them; ``loader`` which of the checkpoint's files are read, and how.
    """

    engine_version: str
    weights: str
    model_config: Mapping[str, object]
    dtype: str
    kv_dtype: str
    quantization: str
    backend: str
    instruction_set: str
    block_tokens: int
    block_shape: tuple[int, ...]
    kv_heads: int
    head_size: int
    tensor_size: int
    pipeline_size: int
    rotary_limit: int
    media: str
    loader: str

    def fingerprint(self) -> str:
        """64 hex digits over all of it and the adapter's version."""
        fields = asdict(self)
        fields["model_config"] = {
            name: value for name, value in self.model_config.items() if name not in _VOLATILE
        }
        document = {"adapter": ADAPTER_VERSION, **fields}
        text = json.dumps(document, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()
