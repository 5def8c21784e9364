"""What the scheduler's side tells workers of a step, and of a load that one of them lost."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.restore import TokenRange
from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.messages.orders import LoadEnd, WorkerReport
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.settings.options import RestoreMode
from tests.engine_adapters.vllm.scheduler_side.sides import (
    BLOCK_TOKENS,
    CHUNK_TOKENS,
    scheduler_side,
)

PROMPT_TOKENS = 300
CHUNKS = PROMPT_TOKENS // CHUNK_TOKENS
BLOCKS: Any = SimpleNamespace(
    ids_of=lambda _: tuple(range(PROMPT_TOKENS // BLOCK_TOKENS)), reserve_all=lambda _: True
)


def request_of(name: str, computed_tokens: int = 0) -> Any:
    return SimpleNamespace(
        request_id=name,
        all_token_ids=[1] * PROMPT_TOKENS,
        num_preemptions=0,
        num_tokens=PROMPT_TOKENS,
        num_computed_tokens=computed_tokens,
        skip_reading_prefix_cache=False,
    )


def side_of(
    mode: RestoreMode = RestoreMode.PREFIX, *, worker_count: int = 1, stores_hidden: bool = False
) -> SchedulerSide:
    """Of an engine whose store has every chunk."""
    chain = KeyChain(
        namespace="n", fingerprint="m", identity=RequestIdentity(), chunk_tokens=CHUNK_TOKENS
    )
    chain.extend([1] * PROMPT_TOKENS)
    answer: Future[Found] = Future()
    answer.set_result(Found(chain=chain, chunk_count=CHUNKS))
    lookup = Mock()
    lookup.ask = lambda *_, **__: PendingLookup(answer, time.monotonic())
    return scheduler_side(
        lookup,
        mode,
        step_tokens=PROMPT_TOKENS,
        saves=False,
        worker_count=worker_count,
        stores_hidden=stores_hidden,
    )


def test_a_step_of_a_prompt_says_what_it_computes() -> None:
    side = side_of()
    side.add_request(request_of("a", 128))
    side.add_request(request_of("b"))
    orders = side.step_orders({"a": 100, "b": 3, "unknown": 1}, (), BLOCKS)
    assert (orders.tokens, orders.other_tokens) == (TokenRange(128, 228), 4)
    assert not orders.asks_nothing


@pytest.mark.parametrize(
    "scheduled", [{"a": 1, "b": 1}, {"unknown": 100}, {"a": 63}, {}], ids=lambda one: str(len(one))
)
def test_a_step_that_shows_nothing_is_passed_by(scheduled: dict[str, int]) -> None:
    """What it costs to look at it would be paid for every token."""
    side = side_of()
    for name in "ab":
        side.add_request(request_of(name, CHUNKS * CHUNK_TOKENS))
    orders = side.step_orders(scheduled, (), BLOCKS)
    assert (orders.tokens, orders.other_tokens) == (TokenRange(0, 0), 0)
    assert orders.asks_nothing is bool(scheduled)


def loading(side: SchedulerSide) -> int:
    """The number of a load of all chunks that has been ordered."""
    request = request_of("a")
    side.add_request(request)
    tokens, _ = side.matched_tokens(request, 0)
    assert tokens is not None
    side.allocated(request, tokens, BLOCKS)
    (order,) = side.step_orders({}, (), BLOCKS).loads
    return order.load_id


def test_other_workers_went_on_with_a_load_that_one_had_given_up() -> None:
    """Bug: the request waited for them, and then computed what they had brought."""
    side = side_of(worker_count=2)
    load_id = loading(side)
    lost = LoadEnd(load_id=load_id, loaded_blocks=4, lost_chunks=(1,))
    side.take_report(WorkerReport(ends=(lost,)))
    assert side.step_orders({}, (), BLOCKS).cancels == {load_id}
    side.take_report(WorkerReport(ends=(LoadEnd(load_id=load_id, loaded_blocks=8),)))
    assert side.step_orders({}, (), BLOCKS).cancels == frozenset()


@pytest.mark.parametrize("mode", [RestoreMode.PREFIX, RestoreMode.CAKE])
def test_a_load_that_is_whole_or_overtaken_goes_on_in_other_workers(mode: RestoreMode) -> None:
    side = side_of(mode, worker_count=2)
    load_id = loading(side)
    lost = (1,) if mode is RestoreMode.CAKE else ()
    side.take_report(
        WorkerReport(ends=(LoadEnd(load_id=load_id, loaded_blocks=16, lost_chunks=lost),))
    )
    assert side.step_orders({}, (), BLOCKS).cancels == frozenset()


def test_a_step_with_a_load_for_which_ranks_meet_is_not_passed_by() -> None:
    """Each has a part of what the others need: a rank that does not come is waited for."""
    side = side_of(RestoreMode.HCACHE, worker_count=2, stores_hidden=True)
    request = request_of("a")
    side.add_request(request)
    tokens, _ = side.matched_tokens(request, 0)
    assert tokens
    side.allocated(request, tokens, BLOCKS)
    (load,) = side.step_orders({}, (), BLOCKS).loads
    end = LoadEnd(load_id=load.load_id, loaded_blocks=4)
    for _ in range(2):
        orders = side.step_orders({"other": 1}, (), BLOCKS)
        assert orders.meetings == (load.load_id,)
        assert not orders.asks_nothing
        side.take_report(WorkerReport(ends=(end,)))
    assert side.step_orders({"other": 1}, (), BLOCKS).asks_nothing
