from engine_adapters.vllm.settings.options import CHUNK_TOKENS_LEAST
from engine_adapters.vllm.testing.engine_arguments import (
    BLOCK_TOKENS,
    CHUNK_TOKENS,
    offloading_config,
)


def test_both_ways_store_chunks_of_the_same_size() -> None:
    config = offloading_config({"type": "fs", "root_dir": "files"}, host_tier_bytes=1 << 20)
    extra = config["kv_connector_extra_config"]
    assert extra["block_size"] == CHUNK_TOKENS
    assert extra["secondary_tiers"] == [{"type": "fs", "root_dir": "files"}]
    assert max(BLOCK_TOKENS, CHUNK_TOKENS_LEAST) == CHUNK_TOKENS
