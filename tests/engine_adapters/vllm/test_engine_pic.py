"""Mode pic in real engines: linked prompts have the logits of an independent dense reference.

Entries are stored by requests of their own, and stand at positions that are no multiple of a block.
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaForCausalLM

from engine_adapters.vllm.settings.support import CAKE_SCHEDULER, HIDDEN_WORKER
from engine_adapters.vllm.testing.engine_arguments import CHUNK_TOKENS, transfer_config
from tests.engine_adapters.runner.link.reference import (
    DenseLlama,
    ReferencePart,
    boundary_tokens,
    ids_of,
    placed,
)
from tests.engine_adapters.vllm.warm_engine import WarmEngine, assert_pool_is_whole
from tests.support.daemon import DaemonProcess

CAKE_ASYNC_SCHEDULER = "engine_adapters.vllm.scheduler.CakeAsyncScheduler"
CHILD = "tests.engine_adapters.vllm.engine_child"
GENERATOR = random.Random(11)


def words(count: int) -> list[int]:
    return [GENERATOR.randrange(4, 512) for _ in range(count)]


ENTRIES = [words(count) for count in (150, 64, 201, 40, 150)]
"""One is shorter than a chunk: nothing of it is stored."""
LOST = 4
"""The entry that loses a chunk."""
HEAD, BETWEEN, QUESTION = words(5), words(9), words(12)


POOL_BLOCKS = 66
"""The prompts below fit into it together, and not what is generated after them."""


@pytest.fixture(scope="module", params=[False, True], ids=["sync", "async"])
def engine(
    request: pytest.FixtureRequest,
    model: Path,
    shared_daemon: DaemonProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[WarmEngine]:
    """With all entries stored."""
    config = transfer_config(
        shared_daemon.socket_path,
        mode="pic",
        match_timeout_ms=60_000,
        salt=f"asynchronous {request.param}",
    )
    log = tmp_path_factory.mktemp("pic") / "log"
    with WarmEngine(
        model,
        log,
        kv_transfer_config=config,
        module=CHILD,
        worker_cls=HIDDEN_WORKER,
        scheduler_cls=CAKE_ASYNC_SCHEDULER if request.param else CAKE_SCHEDULER,
        async_scheduling=request.param,
        enable_prefix_caching=True,
        num_gpu_blocks_override=POOL_BLOCKS,
    ) as engine:
        assert engine.ask("reconnect")
        for entry in ENTRIES:
            engine.tokens(entry)
        assert engine.ask("settle")
        yield engine


@pytest.fixture(autouse=True)
def _pool_is_whole(engine: WarmEngine) -> Iterator[None]:
    yield
    assert_pool_is_whole(engine)


class Prompt:
    """Parts of a prompt: entries by number, and new tokens."""

    def __init__(self, *parts: int | list[int]) -> None:
        self.parts = [
            ReferencePart(tuple(ENTRIES[part]), is_entry=True)
            if isinstance(part, int)
            else ReferencePart(tuple(part), is_entry=False)
            for part in parts
        ]
        self.token_ids = ids_of(self.parts)
        self.entries = [
            [positions.start, positions.stop]
            for part, positions in placed(self.parts)
            if part.is_entry
        ]

    @property
    def named(self) -> dict[str, Any]:
        """The prompt and its entries, as a request names them."""
        return {"prompt": self.token_ids, "entries": self.entries}

    def computed(self, k: int) -> set[int]:
        """What attnlink-k computes: the ends of entries that are no whole chunk as well."""
        found = boundary_tokens(self.parts, k)
        for part, positions in placed(self.parts):
            if part.is_entry:
                found.update(positions[len(positions) // CHUNK_TOKENS * CHUNK_TOKENS :])
        return found


INSIDE = Prompt(HEAD, 0, BETWEEN, 2, 1, 3, QUESTION)
IN_FRONT = Prompt(2, 0, QUESTION, 2)
"""It begins and ends with an entry, and one stands twice."""
METHODS = {"naive": 0, "attnlink-2": 2, "attnlink-16": 16}


@pytest.fixture(scope="module")
def dense(model: Path) -> DenseLlama:
    return DenseLlama(LlamaForCausalLM.from_pretrained(model, dtype=torch.float32).eval())


def farthest(answer: dict[str, Any], logits: Tensor) -> float:
    """How far the likeliest tokens' log-probabilities are from the reference's."""
    expected = logits.log_softmax(-1)
    said = {int(token): value for token, value in answer["logprobs"]}
    assert int(expected.argmax()) in said
    return max(abs(value - float(expected[token])) for token, value in said.items())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prompt", [INSIDE, IN_FRONT], ids=["inside", "in front"])
def test_a_linked_prompt_has_the_logits_of_the_reference(
    engine: WarmEngine, dense: DenseLlama, method: str, prompt: Prompt
) -> None:
    computed = prompt.computed(METHODS[method])
    jumped = engine.counted("jumped_tokens")
    answer = engine.ask("linked", max_tokens=4, link=method, **prompt.named)
    # vLLM admits a request with a token at least.
    token_count = len(prompt.token_ids) - len(computed | {0})
    assert engine.counted("jumped_tokens") - jumped == token_count
    assert farthest(answer, dense.linked(prompt.parts, computed)) < 1e-4
    # Not because linking changes nothing.
    assert farthest(answer, dense.plain(prompt.token_ids)) > 1e-4


def test_a_full_link_is_an_ordinary_prefill(engine: WarmEngine, dense: DenseLlama) -> None:
    answer = engine.ask("linked", max_tokens=4, link="full", **INSIDE.named)
    assert farthest(answer, dense.plain(INSIDE.token_ids)) < 1e-4


def test_nothing_of_a_linked_prompt_is_another_requests(
    engine: WarmEngine, dense: DenseLlama
) -> None:
    """Neither from vLLM's own prefix cache, which is on, nor from the store."""
    first = engine.ask("linked", max_tokens=40, link="naive", **INSIDE.named)
    (plain,) = engine.generate(INSIDE.token_ids, max_tokens=40)
    assert plain["cached"] == 0
    assert plain["tokens"] != first["tokens"]
    assert engine.ask("settle")
    again = engine.ask("linked", max_tokens=40, link="naive", **INSIDE.named)
    assert first == again
    computed = INSIDE.computed(0)
    assert farthest(again, dense.linked(INSIDE.parts, computed)) < 1e-4


def test_what_is_lost_is_computed_in_its_place(
    engine: WarmEngine, dense: DenseLlama, shared_daemon: DaemonProcess
) -> None:
    """A chunk that went between the look-up and the load; the one before it is used."""
    prompt = Prompt(QUESTION, LOST, HEAD)
    lost = len(QUESTION) + CHUNK_TOKENS
    key = engine.ask("rank_keys", prompt=ENTRIES[LOST])[1]
    failed = engine.counted("failed_loads")
    engine.ask("after_match", socket=str(shared_daemon.socket_path), delete=key)
    answer = engine.ask("linked", max_tokens=4, link="attnlink-2", **prompt.named)
    assert engine.counted("failed_loads") == failed + 1
    computed = prompt.computed(2) | set(range(lost, lost + CHUNK_TOKENS))
    assert farthest(answer, dense.linked(prompt.parts, computed)) < 1e-4


def test_a_request_is_aborted_while_its_entries_are_loaded(
    engine: WarmEngine, dense: DenseLlama, shared_daemon: DaemonProcess
) -> None:
    """Its blocks are free, and nothing is written to them: the next request has them."""
    engine.ask("in_load", pid=shared_daemon.pid, name="SIGSTOP")
    try:
        assert engine.ask("abort_in_load", prompt=INSIDE.token_ids, entries=INSIDE.entries)
        blocks = engine.ask("blocks")
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    assert blocks["free"] == blocks["all"]
    answer = engine.ask("linked", max_tokens=4, link="attnlink-16", **IN_FRONT.named)
    assert farthest(answer, dense.linked(IN_FRONT.parts, IN_FRONT.computed(16))) < 1e-4


def test_entries_that_cannot_be_linked_are_computed(engine: WarmEngine, dense: DenseLlama) -> None:
    answer = engine.ask(
        "linked",
        prompt=INSIDE.token_ids,
        max_tokens=4,
        entries=[[5, 900]],
        link="attnlink-16",
    )
    assert farthest(answer, dense.plain(INSIDE.token_ids)) < 1e-4


def test_preempted_requests_are_linked_again(engine: WarmEngine) -> None:
    """Their answers are those that each gets alone."""
    named = [INSIDE.named, IN_FRONT.named, INSIDE.named]
    alone = [
        engine.ask("all_linked", prompts=[one], max_tokens=360, link="attnlink-16")[0]
        for one in named
    ]
    before = engine.ask("metrics")["vllm:num_preemptions"]
    together = engine.ask("all_linked", prompts=named, max_tokens=360, link="attnlink-16")
    assert engine.ask("metrics")["vllm:num_preemptions"] > before
    assert together == alone
