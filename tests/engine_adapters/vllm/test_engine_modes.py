"""Modes cake, hcache and auto in real engines: the tokens are those of one without a store."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from engine_adapters.restore import CostProfile, save_profile
from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import transfer_config
from tests.engine_adapters.vllm.warm_engine import WarmEngine
from tests.support import labs
from tests.support.daemon import DaemonProcess

CHILD = "tests.engine_adapters.vllm.engine_child"
PROMPT_TOKENS = 700
CHUNK_TOKENS = 64
STORED = PROMPT_TOKENS // CHUNK_TOKENS * CHUNK_TOKENS
NEW_TOKENS = 48
POOL_BLOCKS = 116
"""Of 32 tokens, one of them vLLM's own.

Five requests fit with five generated tokens each. The first of them to generate its 37th then asks
for one block more than there are.
"""

ATTEMPTS = 3
"""Passes until one has both jumped and preempted; the tokens of each are compared."""

EXTENT_HEADER_BYTES = 4096
HIDDEN_BYTES, KV_BYTES = 512, 1024
"""Of a token in a layer."""
COSTS = CostProfile(
    model="m",
    machine="m",
    measured_at_s=1.0,
    hidden_bytes=HIDDEN_BYTES,
    kv_bytes=KV_BYTES,
    compute_token_s=1e-4,
    project_token_s=1e-7,
    read_bytes_per_s=2e7,
)
"""By which all layers are stored as their inputs."""


def prompts(count: int, *, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(4, 512) for _ in range(PROMPT_TOKENS)] for _ in range(count)]


PROMPTS = prompts(8, seed=2)

Start = Callable[..., WarmEngine]


@pytest.fixture(scope="module")
def expected(heads_model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    with WarmEngine(heads_model, tmp_path_factory.mktemp("plain") / "engine.log") as engine:
        return [engine.tokens(prompt, max_tokens=NEW_TOKENS)[0] for prompt in PROMPTS]


@pytest.fixture
def start(heads_model: Path, shared_daemon: DaemonProcess, tmp_path: Path) -> Iterator[Start]:
    with ExitStack() as stack:

        def make(
            mode: str, *, cost_profile: str = "", salt: str = "", **changes: object
        ) -> WarmEngine:
            config = transfer_config(
                shared_daemon.socket_path,
                mode=mode,
                salt=salt or mode,
                match_timeout_ms=60_000,
                cost_profile=cost_profile,
            )
            engine = stack.enter_context(
                WarmEngine(heads_model, tmp_path / "log", kv_transfer_config=config, **changes)
            )
            assert engine.ask("reconnect")
            return engine

        yield make


def test_cake_jumps_and_preempted_requests_are_equal(
    start: Start, expected: list[list[int]]
) -> None:
    """Eight restored requests in a pool that holds fewer than five to their end."""
    engine = start("cake", scheduler_cls=CAKE_SCHEDULER, num_gpu_blocks_override=POOL_BLOCKS)
    assert engine.tokens(*PROMPTS, max_tokens=NEW_TOKENS) == expected
    assert engine.ask("settle")
    before = engine.ask("metrics")
    counted = ("kvstored_jumps", "kvstored_jumped_tokens", "num_preemptions")
    names = [f"vllm:{name}" for name in counted]
    for _ in range(ATTEMPTS):
        # On a busy machine computing may be ahead of all loads, or requests too far apart to meet.
        assert engine.tokens(*PROMPTS, max_tokens=NEW_TOKENS) == expected
        after = engine.ask("metrics")
        if all(after[name] > before.get(name, 0) for name in names):
            break
    for name in names:
        assert after[name] > before.get(name, 0)
    blocks = engine.ask("blocks")
    assert blocks["free"] == blocks["all"]


def test_engine_as_it_comes(
    heads_model: Path, shared_daemon: DaemonProcess, tmp_path: Path, expected: list[list[int]]
) -> None:
    """No mode is named, and vLLM's own prefix cache is on: a prompt is taken from both."""
    config = transfer_config(shared_daemon.socket_path, match_timeout_ms=60_000)
    changes: dict[str, object] = {
        "enable_prefix_caching": True,
        "max_num_batched_tokens": 64,
        "kv_transfer_config": config,
    }
    with WarmEngine(heads_model, tmp_path / "first.log", **changes) as engine:
        assert engine.ask("reconnect")
        assert engine.tokens(PROMPTS[3], max_tokens=NEW_TOKENS) == [expected[3]]
        assert engine.ask("settle")
    with WarmEngine(heads_model, tmp_path / "second.log", module=CHILD, **changes) as engine:
        assert engine.ask("reconnect")
        # What loads is made with the first step; each load is then over before computing begins.
        engine.generate([4], max_tokens=1)
        assert engine.ask("until_load_ends")
        engine.generate(PROMPTS[3][:200], max_tokens=1)
        restored = engine.counted("restored_tokens")
        assert restored > 0
        assert engine.ask("until_load_ends")
        assert engine.tokens(PROMPTS[3], max_tokens=NEW_TOKENS) == [expected[3]]
        assert engine.counted("restored_tokens") > restored
        assert engine.tokens(PROMPTS[3], max_tokens=NEW_TOKENS) == [expected[3]]
        blocks = engine.ask("blocks")
        assert blocks["free"] == blocks["all"]


@pytest.mark.parametrize(
    ("project_token_s", "token_bytes"),
    [(None, 3 * HIDDEN_BYTES), (1e-4, 2 * HIDDEN_BYTES + KV_BYTES)],
)
def test_projected_keys_and_values_give_the_same_tokens(
    start: Start,
    expected: list[list[int]],
    tmp_path: Path,
    project_token_s: float | None,
    token_bytes: int,
) -> None:
    """All three layers as their inputs, or one as keys and values where projecting is dear."""
    path = ""
    if project_token_s is not None:
        path = str(tmp_path / "costs.json")
        save_profile(Path(path), replace(COSTS, project_token_s=project_token_s))
    engine = start("hcache", worker_cls=HIDDEN_WORKER, cost_profile=path)
    assert [engine.tokens(prompt, max_tokens=NEW_TOKENS)[0] for prompt in PROMPTS[:2]] == expected[
        :2
    ]
    assert engine.ask("settle")
    answers = [engine.generate(prompt, max_tokens=NEW_TOKENS)[0] for prompt in PROMPTS[:2]]
    assert [answer["tokens"] for answer in answers] == expected[:2]
    assert all(answer["cached"] == STORED for answer in answers)
    assert engine.counted("projected_tokens") == 2 * STORED
    chunk_bytes = EXTENT_HEADER_BYTES + CHUNK_TOKENS * token_bytes
    assert engine.counted("load_bytes") == 2 * STORED // CHUNK_TOKENS * chunk_bytes
    blocks = engine.ask("blocks")
    assert blocks["free"] == blocks["all"]


def test_auto_stores_hidden_states_where_measured_costs_say_so(
    start: Start, expected: list[list[int]], tmp_path: Path
) -> None:
    save_profile(tmp_path / "costs.json", COSTS)
    engine = start("auto", worker_cls=HIDDEN_WORKER, cost_profile=str(tmp_path / "costs.json"))
    assert engine.tokens(PROMPTS[0], max_tokens=NEW_TOKENS) == expected[:1]
    assert engine.ask("settle")
    assert engine.tokens(PROMPTS[0], max_tokens=NEW_TOKENS) == expected[:1]
    assert engine.counted("projected_tokens") == STORED


@labs.LATE_COPIES.marker()
@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("prefix", {}),
        ("cake", {"scheduler_cls": CAKE_SCHEDULER, "num_gpu_blocks_override": POOL_BLOCKS}),
        ("hcache", {"worker_cls": HIDDEN_WORKER}),
    ],
)
def test_copies_that_come_late_change_no_token(
    start: Start, expected: list[list[int]], mode: str, changes: dict[str, object]
) -> None:
    """As on a GPU: in any order, with poison until then, beside steps and preemptions."""
    engine = start(mode, salt=f"late {mode}", module=CHILD, **changes)
    assert engine.ask("copy_late", delay_s=0.005)
    for _ in range(2):
        assert engine.tokens(*PROMPTS, max_tokens=NEW_TOKENS) == expected
        assert engine.ask("settle")
    assert engine.ask("until_load_ends")
    assert engine.tokens(PROMPTS[0], max_tokens=NEW_TOKENS) == expected[:1]
    assert engine.ask("late_copies") > 0
    # So small a model computes a prompt before late copies of its end have come.
    assert engine.counted("restored_tokens") > 0 or mode == "cake"
    blocks = engine.ask("blocks")
    assert blocks["free"] == blocks["all"]
