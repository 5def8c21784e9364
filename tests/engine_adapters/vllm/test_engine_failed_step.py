"""A step of a real engine that does not come to its end."""

import random
from pathlib import Path

from engine_adapters.vllm.testing.engine_arguments import transfer_config
from kvstored_client import Client
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

CHILD = "tests.engine_adapters.vllm.engine_child"
CHUNKS = 3


def prompt_of(seed: int) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(4, 512) for _ in range(CHUNKS * 64)]


def test_what_a_failed_forward_left_in_its_blocks_was_stored(
    heads_model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> None:
    """Bug: under valid keys and with valid checksums, so that later engines answered wrongly."""
    config = transfer_config(shared_daemon.socket_path, mode="prefix", salt="failing")
    whole, broken = prompt_of(1), prompt_of(2)
    with WarmEngine(
        heads_model, tmp_path / "engine.log", module=CHILD, kv_transfer_config=config
    ) as engine:
        assert engine.ask("reconnect")
        engine.generate(whole)
        assert engine.ask("settle")
        assert engine.ask("fail_forward", prompt=broken) == "a layer failed"
        keys = [engine.ask("rank_keys", prompt=prompt) for prompt in (whole, broken)]
    with Client(shared_daemon.socket_path, arena_bytes=1 << 20, strict=True) as client:
        stored = [[bool(client.admin.list_chunks(key).chunks) for key in part] for part in keys]
    assert stored == [[True] * CHUNKS, [False] * CHUNKS]
