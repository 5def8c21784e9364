"""LoRA adapters in a real engine: each has states of its own, known by its weights."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine_adapters.vllm.testing.engine_arguments import transfer_config
from engine_adapters.vllm.testing.engine_process import EngineProcess
from engine_adapters.vllm.testing.tiny_model import CONFIG
from tests.engine_adapters.vllm.test_engine_prefix import prompts
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support.daemon import DaemonProcess

(PROMPT,) = prompts(1, seed=7)
STORED_TOKENS = len(PROMPT) // 64 * 64
RANK = 8


def make_adapter(folder: Path, *, seed: int) -> Path:
    """Random weights that are large enough to change tokens."""
    generator = torch.Generator().manual_seed(seed)
    width = CONFIG["hidden_size"]
    head = width // CONFIG["num_attention_heads"]
    outputs = {"q_proj": width, "k_proj": head * 2, "v_proj": head * 2}
    weights = {}
    for layer in range(CONFIG["num_hidden_layers"]):
        for module, output in outputs.items():
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            for part, shape in (("lora_A", (RANK, width)), ("lora_B", (output, RANK))):
                values = 0.3 * torch.randn(shape, generator=generator)
                weights[f"{name}.{part}.weight"] = values
    folder.mkdir(exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": [*outputs]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def engines(
    model: Path, shared_daemon: DaemonProcess, tmp_path: Path
) -> Iterator[list[WarmEngine]]:
    """One without a connector, and two that share the store."""
    lora: dict[str, Any] = {"enable_lora": True, "max_loras": 2, "max_lora_rank": RANK}
    config = transfer_config(shared_daemon.socket_path, mode="prefix", match_timeout_ms=10_000)
    started = []
    try:
        for extra in ({}, {"kv_transfer_config": config}, {"kv_transfer_config": config}):
            module = "tests.engine_adapters.vllm.engine_child"
            engine = WarmEngine(model, tmp_path / "log", module=module, **lora, **extra)
            started.append(engine.__enter__())
        for engine in started[1:]:
            assert engine.ask("reconnect")
        yield started
    finally:
        for engine in started:
            engine.__exit__()


def ask(engine: EngineProcess, folder: Path, number: int) -> dict[str, Any]:
    answer: dict[str, Any] = engine.ask(
        "adapted", prompt=PROMPT, max_tokens=8, folder=str(folder), number=number
    )
    return answer


def test_adapters_have_states_of_their_own(engines: list[EngineProcess], tmp_path: Path) -> None:
    plain, first, second = engines
    one, other = (make_adapter(tmp_path / f"adapter{seed}", seed=seed) for seed in (1, 2))
    expected = {
        folder: ask(plain, folder, number)["tokens"] for number, folder in ((1, one), (2, other))
    }
    assert expected[one] != expected[other]
    assert expected[one] != plain.tokens(PROMPT)[0]

    assert ask(first, one, 1)["cached"] == 0
    assert first.ask("settle")
    (without,) = first.generate(PROMPT)
    assert (without["cached"], without["tokens"]) == (0, plain.tokens(PROMPT)[0])
    stranger = ask(first, other, 2)
    assert (stranger["cached"], stranger["tokens"]) == (0, expected[other])

    # Another engine knows it by another number.
    again = ask(second, one, 5)
    assert (again["cached"], again["tokens"]) == (STORED_TOKENS, expected[one])

    # The second engine goes on with what it has loaded; what lies there now is the other's.
    for path in one.iterdir():
        path.write_bytes((other / path.name).read_bytes())
        os.utime(path, ns=(1, 1))
    kept = ask(second, one, 5)
    assert (kept["cached"], kept["tokens"]) == (0, expected[one])
    assert second.counted("unknown_requests") == 1
    renewed = ask(second, one, 6)
    assert (renewed["cached"], renewed["tokens"]) == (STORED_TOKENS, expected[other])
