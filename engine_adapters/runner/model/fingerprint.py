"""Identity of the states that a model computes: any difference must be a miss."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from engine_adapters.file_digests import file_digests
from engine_adapters.runner.model.model_config import Family, ModelConfig
from engine_adapters.runner.model.weights import weight_files

ADAPTER_VERSION = "kvstored.runner.1"
"""Changes whenever the runner computes or lays out states differently than before."""

_NOT_IN_STATES = frozenset({"dtype", "position_count", "stop_token_ids", "has_tied_embeddings"})
"""Config fields that no key or value depends on; the dtype is the layout's own field."""


def model_fingerprint(directory: Path, config: ModelConfig) -> str:
    """64 hex digits over the weights' bytes, what the config says of them, and the adapter.

    Reads every weights file that ``file_digests`` does not remember. Raises ModelError when a file
    is missing, OSError when it cannot be read.
    """
    digests = file_digests(weight_files(directory))
    return fingerprint(config, (digest.hex() for digest in digests))


def fingerprint(config: ModelConfig, weight_digests: Iterable[str]) -> str:
    """The pure part of ``model_fingerprint``; the order of the digests counts."""
    fields = {name: value for name, value in asdict(config).items() if name not in _NOT_IN_STATES}
    if config.family is Family.LLAMA:
        # The family that a fingerprint without one means.
        del fields["family"]
    scaling = None if config.rotary is None else config.rotary.scaling
    identity = {
        "adapter": ADAPTER_VERSION,
        "config": fields,
        "rotary_scaling": "default" if scaling is None else type(scaling).__name__,
        "weights": list(weight_digests),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
