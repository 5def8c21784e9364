"""What the bytes of a chunk of vLLM's host tier depend on. Pure but for reading weights."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine_adapters.weights_identity import weights_identity
from kvstored_contract.layout import hash_fields

TIER_VERSION = "kvstored.vllm.tier.1"
"""Changes whenever the tier stores other bytes for the same chunk."""
_CHUNK = b"kvstored.vllm.tier.chunk.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TierIdentity:
    """Everything that vLLM tells a tier about its engine, and what the user adds to it.

    ``checkpoint_config`` is the text of a local checkpoint's ``config.json``, ``chunk_bytes``
    the size of a chunk of all workers; ``is_canonical`` and ``is_replicated`` say how vLLM orders
    the bytes in it. ``named`` is whatever else changes the states, such as
    overrides of the configuration, of which vLLM tells no tier.
    """

    engine_version: str
    weights: str
    checkpoint_config: str
    dtype: str
    groups: tuple[tuple[int, tuple[str, ...]], ...]
    parallel: Mapping[str, Any]
    kv_cache_layout: str
    is_canonical: bool
    is_replicated: bool
    instruction_set: str
    blocks_per_chunk: int
    tokens_per_hash: int
    chunk_bytes: int
    named: str

    def fingerprint(self) -> str:
        """64 hex digits over all of it and the tier's version."""
        text = json.dumps({"tier": TIER_VERSION, **asdict(self)}, sort_keys=True, default=repr)
        return hashlib.sha256(text.encode()).hexdigest()


def tier_identity(
    config: Any,
    *,
    engine_version: str,
    instruction_set: str,
    chunk_bytes: int,
    revision: str,
    named: str,
) -> TierIdentity:
    """The identity of an engine by vLLM's ``OffloadingConfig``.

    ``revision`` names the weights of a model that is no local folder. Raises
    UnknownWeightsError, OSError.
    """
    checkpoint = Path(config.model.name) / "config.json"
    parallel = asdict(config.parallel)
    # They say which of several equal engines it is.
    for name in ("rank", "data_parallel_index", "data_parallel_rank_local", "data_parallel_size"):
        parallel.pop(name, None)
    return TierIdentity(
        engine_version=engine_version,
        weights=weights_identity(config.model.name, commit=revision or None),
        checkpoint_config=checkpoint.read_text() if checkpoint.is_file() else "",
        dtype=str(config.model.dtype),
        groups=tuple((group.tokens_per_block, group.layer_names) for group in config.groups),
        parallel=parallel,
        kv_cache_layout=str(config.kv_cache_layout),
        # Engines before 0.32 have neither.
        is_canonical=bool(getattr(config, "canonical_layout", False)),
        is_replicated=bool(getattr(config, "replicated_layout", False)),
        instruction_set=instruction_set,
        blocks_per_chunk=config.cache.blocks_per_chunk,
        tokens_per_hash=config.cache.tokens_per_hash,
        chunk_bytes=chunk_bytes,
        named=named,
    )


def tier_key(namespace: str, layout_id: bytes, offload_key: bytes) -> bytes:
    """The key under which a chunk of the host tier is stored (32 bytes).

    ``offload_key`` is vLLM's hash of the chunk with all tokens before it, its LoRA adapter,
    its images and its ``cache_salt``, and the number of its group.
    """
    return hash_fields([_CHUNK, namespace.encode(), layout_id, offload_key])
