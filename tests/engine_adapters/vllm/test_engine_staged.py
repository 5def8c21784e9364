"""Layer inputs that forwards put aside, as on a GPU, in real engines with copies that come late."""

import random
from pathlib import Path

import pytest

from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import CHUNK_TOKENS, transfer_config
from tests.engine_adapters.vllm.warm_engine import WarmEngine, assert_pool_is_whole
from tests.support.daemon import DaemonProcess

CHILD = "tests.engine_adapters.vllm.engine_child"
PROMPT_TOKENS, NEW_TOKENS = 400, 16
STORED = PROMPT_TOKENS // CHUNK_TOKENS * CHUNK_TOKENS
GENERATOR = random.Random(5)
PROMPTS = [[GENERATOR.randrange(4, 512) for _ in range(PROMPT_TOKENS)] for _ in range(6)]
POOL_BLOCKS = 66
"""Fewer than all requests need: blocks go from one request to the next."""


@pytest.fixture(scope="module")
def expected(heads_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    with WarmEngine(heads_model, tmp_path_factory.mktemp("plain") / "engine.log") as engine:
        return [engine.tokens(prompt, max_tokens=NEW_TOKENS)[0] for prompt in PROMPTS]


@pytest.mark.parametrize(
    ("mode", "changes"), [("hcache", {}), ("pic", {"scheduler_cls": CAKE_SCHEDULER})]
)
def test_late_layer_inputs_change_no_token(
    heads_model: Path,
    shared_daemon: DaemonProcess,
    tmp_path: Path,
    expected: list[list[int]],
    mode: str,
    changes: dict[str, object],
) -> None:
    """In any order, with poison until then, beside requests that take over each other's blocks."""
    config = transfer_config(
        shared_daemon.socket_path, mode=mode, salt=f"staged {mode}", match_timeout_ms=60_000
    )
    with WarmEngine(
        heads_model,
        tmp_path / "log",
        kv_transfer_config=config,
        worker_cls=HIDDEN_WORKER,
        module=CHILD,
        stages_inputs=True,
        num_gpu_blocks_override=POOL_BLOCKS,
        **changes,
    ) as engine:
        assert engine.ask("reconnect")
        assert engine.ask("copy_late", delay_s=0.005)
        first, second = PROMPTS[:1], PROMPTS[1:]
        # Alone, so that all of it is saved, whatever the saver drops of many at once.
        assert engine.tokens(*first, max_tokens=NEW_TOKENS) == expected[:1]
        assert engine.ask("settle")
        assert engine.ask("staged")
        assert engine.counted("dropped_saves") == 0
        assert engine.tokens(*second, max_tokens=NEW_TOKENS) == expected[1:]
        assert engine.ask("settle")
        assert engine.ask("until_load_ends")
        before = engine.counted("projected_tokens")
        assert engine.tokens(*first, max_tokens=NEW_TOKENS) == expected[:1]
        assert engine.counted("projected_tokens") - before == STORED
        assert engine.tokens(*PROMPTS, max_tokens=NEW_TOKENS) == expected
        assert engine.ask("late_copies") > 0
        assert_pool_is_whole(engine)
