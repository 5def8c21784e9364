"""Mode hcache in engines that compile the model, as vLLM does where nothing else is said."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.vllm.settings.support import HIDDEN_WORKER
from engine_adapters.vllm.testing.child_environment import engine_environment, interpreter
from engine_adapters.vllm.testing.engine_arguments import CHUNK_TOKENS, transfer_config
from engine_adapters.vllm.testing.engine_process import EngineProcess
from engine_adapters.vllm.testing.fork_server import ForkServer
from engine_adapters.vllm.testing.tiny_model import make_model
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

pytestmark = pytest.mark.timeout(400)
"""Three engines start and two of them compile in one test."""

CHILD = "tests.engine_adapters.vllm.engine_child"
LAYERS = 2
"""Fewer than other tests have: compiling takes a second for each kernel."""
PROMPT_TOKENS = 330
STORED = PROMPT_TOKENS // CHUNK_TOKENS * CHUNK_TOKENS
GENERATOR = random.Random(9)
PROMPTS = [[GENERATOR.randrange(4, 512) for _ in range(PROMPT_TOKENS)] for _ in range(2)]


def compile_in_a_hurry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that are slow and soon there: without vectors, and not optimized."""
    compiler = folder / "compiler"
    compiler.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "0")


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
def test_layer_inputs_are_taken_of_a_compiled_model(
    tmp_path_factory: pytest.TempPathFactory,
    shared_daemon: DaemonProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: hooks that came after vLLM's compilation, which is its default, never ran."""
    model = make_model(
        tmp_path_factory.mktemp("compiled"), num_key_value_heads=4, num_hidden_layers=LAYERS
    )
    with WarmEngine(model, tmp_path / "log") as plain:
        expected = [plain.tokens(prompt) for prompt in PROMPTS]
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    compile_in_a_hurry(tmp_path, monkeypatch)
    copies = ForkServer(interpreter(), engine_environment(tmp_path))

    def compiled(mode: str, **changes: Any) -> EngineProcess:
        config = transfer_config(
            shared_daemon.socket_path, mode=mode, salt=mode, match_timeout_ms=60_000
        )
        return EngineProcess(
            model,
            tmp_path / "log",
            enforce_eager=False,
            kv_transfer_config=config,
            copies=copies,
            **changes,
        )

    with copies:
        with compiled("prefix"):
            assert (tmp_path / "torch_compile_cache").exists()
        # The last one finds a compiled model of both kinds, and takes inputs as on a GPU.
        for prompt, answer, is_staged in zip(PROMPTS, expected, (False, True), strict=True):
            with compiled(
                "hcache", worker_cls=HIDDEN_WORKER, module=CHILD, stages_inputs=is_staged
            ) as engine:
                assert engine.ask("reconnect")
                for _ in range(2):
                    assert engine.tokens(prompt) == answer
                    assert engine.ask("settle")
                assert engine.ask("staged") is is_staged
                assert engine.counted("projected_tokens") == STORED
                assert engine.counted("dropped_saves") == 0
