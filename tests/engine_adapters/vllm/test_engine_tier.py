"""The store behind vLLM's own host tier, in real engines."""

import random
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.engine_arguments import offloading_config
from kvstored_client import Client
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

pytest.importorskip("vllm", minversion="0.31", reason="needs vLLM 0.31: make test-vllm")

PROMPT_TOKENS = 330
CHUNK_TOKENS = 64
CHUNKS = PROMPT_TOKENS // CHUNK_TOKENS
GENERATOR = random.Random(4)
PROMPT = [GENERATOR.randrange(4, 512) for _ in range(PROMPT_TOKENS)]


def stored_chunks(daemon: DaemonProcess) -> int:
    with Client(daemon.socket_path, arena_bytes=1 << 20, strict=True) as client:
        return len(client.admin.list_chunks().chunks)


def test_second_engine_restores_by_vllms_own_connector(
    model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    tier = {
        "type": "KvstoredTier",
        "module_path": "engine_adapters.vllm.tier",
        "socket": str(shared_daemon.socket_path),
    }
    config = offloading_config(tier, host_tier_bytes=16 << 20)
    with WarmEngine(model, tmp_path / "plain.log") as engine:
        expected = engine.tokens(PROMPT)
    with WarmEngine(model, tmp_path / "first.log", kv_transfer_config=config) as engine:
        assert engine.tokens(PROMPT) == expected
        # vLLM moves chunks to its tiers in steps only, so that there must be some.
        while stored_chunks(shared_daemon) < CHUNKS:
            engine.generate([4], max_tokens=1)
    with WarmEngine(model, tmp_path / "second.log", kv_transfer_config=config) as engine:
        (answer,) = engine.generate(PROMPT)
        assert [answer["tokens"]] == expected
        assert answer["cached"] == CHUNKS * CHUNK_TOKENS
        blocks = engine.ask("blocks")
        assert blocks["free"] == blocks["all"]
