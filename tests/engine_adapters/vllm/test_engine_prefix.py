"""Mode prefix in a real engine: tokens are those of an engine without a store."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.engine_arguments import transfer_config
from engine_adapters.vllm.testing.engine_process import EngineProcess
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

PROMPT_TOKENS = 330
CHUNK_TOKENS = 64


def prompts(count: int, seed: int, length: int = PROMPT_TOKENS) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(4, 512) for _ in range(length)] for _ in range(count)]


PROMPTS = prompts(3, seed=1)


@pytest.fixture(scope="module")
def expected(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """What an engine without a connector generates."""
    with WarmEngine(model, tmp_path_factory.mktemp("plain") / "engine.log") as engine:
        return [engine.tokens(prompt)[0] for prompt in PROMPTS]


@pytest.fixture(scope="module")
def engine(
    model: Path, shared_daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    config = transfer_config(
        shared_daemon.socket_path,
        mode="prefix",
        match_timeout_ms=10_000,
    )
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    with WarmEngine(model, log, kv_transfer_config=config) as process:
        assert process.ask("reconnect")
        yield process


def saved(engine: EngineProcess, index: int) -> None:
    """Has the prompt computed and its chunks stored."""
    engine.generate(PROMPTS[index])
    assert engine.ask("settle")


def test_second_request_restores_the_prefix(
    engine: EngineProcess, expected: list[list[int]]
) -> None:
    saved(engine, 0)
    (answer,) = engine.generate(PROMPTS[0])
    assert answer["tokens"] == expected[0]
    assert answer["cached"] == PROMPT_TOKENS // CHUNK_TOKENS * CHUNK_TOKENS
    assert engine.counted("restored_tokens") == answer["cached"]


def test_salt_separates(engine: EngineProcess, expected: list[list[int]]) -> None:
    saved(engine, 1)
    (answer,) = engine.generate(PROMPTS[1], salt="mine")
    assert answer["cached"] == 0
    assert answer["tokens"] == expected[1]


def test_hung_daemon_ends_at_the_deadline(
    engine: EngineProcess, shared_daemon: DaemonProcess, expected: list[list[int]]
) -> None:
    saved(engine, 2)
    os.kill(shared_daemon.pid, signal.SIGSTOP)
    try:
        (answer,) = engine.generate(PROMPTS[2])
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    assert answer["tokens"] == expected[2]
    assert answer["cached"] == 0


def test_no_block_is_leaked(engine: EngineProcess) -> None:
    blocks = engine.ask("blocks")
    assert blocks["free"] == blocks["all"]
