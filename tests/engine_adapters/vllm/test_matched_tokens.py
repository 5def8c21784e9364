"""What vLLM is promised of a request before it runs."""

import itertools
import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode

CHUNK_TOKENS, BLOCK_TOKENS, PROMPT_TOKENS = 64, 16, 300


def promised(mode: RestoreMode, *, chunk_count: int, computed_tokens: int) -> tuple[int, bool]:
    """Of a request of which the store has so many chunks, and vLLM so many tokens itself."""
    answer: Future[Found] = Future()
    answer.set_result(Found(chain=Mock(), chunk_count=chunk_count))
    lookup = Mock()
    lookup.ask = lambda *_, **__: PendingLookup(answer, time.monotonic())
    side = SchedulerSide(
        AdapterOptions(),
        fingerprint="m",
        identifier=Mock(identity_of=lambda _request: RequestIdentity()),
        lookup=lookup,
        choice=LoadChoice(
            mode=mode,
            planner=ModeChoice(
                profile=None, layer_count=2, chunk_tokens=CHUNK_TOKENS, step_tokens=PROMPT_TOKENS
            ),
            block_tokens=BLOCK_TOKENS,
        ),
        worker_count=1,
    )
    request: Any = SimpleNamespace(
        request_id="a",
        all_token_ids=[1] * PROMPT_TOKENS,
        num_preemptions=0,
        num_tokens=PROMPT_TOKENS,
        skip_reading_prefix_cache=False,
    )
    side.add_request(request)
    tokens, is_asynchronous = side.matched_tokens(request, computed_tokens)
    assert tokens is not None
    return tokens, is_asynchronous


@pytest.mark.parametrize("mode", [mode for mode in RestoreMode if mode is not RestoreMode.OFF])
def test_no_load_is_promised_within_a_step(mode: RestoreMode) -> None:
    """VLLM's V2 model runner gives wrong tokens where a synchronous load fails and is recomputed:
    it goes on at the position that the load would have led to (vLLM issue 49250)."""
    promises = [
        promised(mode, chunk_count=chunk_count, computed_tokens=computed_tokens)
        for chunk_count, computed_tokens in itertools.product(
            range(PROMPT_TOKENS // CHUNK_TOKENS + 1), range(0, PROMPT_TOKENS, BLOCK_TOKENS)
        )
    ]
    assert all(is_asynchronous is (tokens > 0) for tokens, is_asynchronous in promises)
    loads = any(tokens > 0 for tokens, _ in promises)
    assert loads is (mode is not RestoreMode.CAKE), "what is overtaken is not waited for"
