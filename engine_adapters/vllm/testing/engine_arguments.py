"""What a user names to have vLLM use the adapter, and the arguments of all engines of tests."""

from pathlib import Path
from typing import Any

BLOCK_TOKENS = 32
CHUNK_TOKENS = 64
"""What the adapter chooses by itself for blocks of ``BLOCK_TOKENS``."""
LEAST_WAIT_MS = 600_000
"""Longer than any load."""
ENGINE = {
    "dtype": "float32",
    "max_model_len": 2048,
    "max_num_batched_tokens": 256,
    "block_size": BLOCK_TOKENS,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "seed": 0,
    "disable_log_stats": False,
    "distributed_executor_backend": "uni",
}
"""Of ``LLM``. In float32, so that all ways to a token give the same one."""


def transfer_config(socket: Path, **extra: Any) -> dict[str, Any]:
    """``--kv-transfer-config`` of the connector; ``extra`` are options of the adapter.

    Unless they say otherwise, a load is waited for even where computing would be sooner: tiny
    models compute a prompt in less time than a busy machine takes to load it.
    """
    return {
        "kv_connector": "KvstoredConnector",
        "kv_connector_module_path": "engine_adapters.vllm.connector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "socket": str(socket),
            "least_wait_ms": LEAST_WAIT_MS,
            **extra,
        },
    }


def offloading_config(secondary_tier: dict[str, Any], *, host_tier_bytes: int) -> dict[str, Any]:
    """``--kv-transfer-config`` of vLLM's own offloading to its host tier and one below it."""
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": {
            "spec_name": "CpuTieringSpec",
            "spec_module_path": "engine_adapters.vllm.testing.host_tier",
            "cpu_bytes_to_use": host_tier_bytes,
            "block_size": CHUNK_TOKENS,
            "secondary_tiers": [secondary_tier],
        },
    }
