"""Mode prefix in vLLM's real scheduler: loads between steps, and what becomes of failures."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.daemon import DaemonProcess

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from engine_adapters.vllm.messages.block_span import BlockSpan
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from tests.engine_adapters.vllm.scheduler_bench import (
    CHUNK_TOKENS,
    MATCH_TIMEOUT_MS,
    SchedulerBench,
)
from tests.engine_adapters.vllm.stored_prefix import store_prefix
from tests.support.waiting import wait_until

CHUNKS = 5
PROMPT = CHUNKS * CHUNK_TOKENS + 10
STORED = CHUNKS * CHUNK_TOKENS

Start = Callable[..., SchedulerBench]


@pytest.fixture
def start(model: Path, shared_daemon: DaemonProcess) -> Iterator[Start]:
    benches: list[SchedulerBench] = []

    def make(
        *, stored: int = STORED, scheduler: type = Scheduler, **options: Any
    ) -> SchedulerBench:
        bench = SchedulerBench(model, shared_daemon.socket_path, scheduler=scheduler, **options)
        if stored:
            tokens = [index % 500 for index in range(stored)]
            store_prefix(shared_daemon.socket_path, bench.side.lookup, tokens, salt=bench.salt)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


def test_loaded_prefix_is_not_computed(start: Start) -> None:
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    assert not load.overtaken
    assert "a" not in bench.last.num_scheduled_tokens
    bench.answer(bench.ended(load), finished=("a",))
    bench.step()
    assert bench.position("a") == STORED
    bench.answer()
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_last_token_of_a_stored_prompt_is_computed(start: Start) -> None:
    """Its logits are what the request wants; what is loaded ends on a block before it."""
    bench = start()
    bench.add("a", STORED)
    load = bench.step_until_load()
    assert len(load.span.block_ids) == STORED // 16 - 1
    assert len(load.chain_keys) == CHUNKS


def test_lost_block_is_computed_from_there(start: Start) -> None:
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    lost = load.span.block_ids[8:]
    bench.answer(bench.ended(load, lost=(2,)), finished=("a",), bad_blocks=lost)
    bench.step()
    assert bench.position("a") == 2 * CHUNK_TOKENS
    assert bench.counts["failed_loads"] == 1
    bench.answer()
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_lost_chunk_is_saved_again(start: Start) -> None:
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    lost = load.span.block_ids[8:]
    bench.answer(bench.ended(load, lost=(2,)), finished=("a",), bad_blocks=lost)
    (save,) = bench.step().saves
    assert save.first_chunk == 2
    assert save.parent_key == load.chain_keys[1]


def test_first_block_lost_is_not_asked_for_again(start: Start) -> None:
    """A chunk that never comes would be asked for in every step."""
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    bench.answer(bench.ended(load, lost=(0,)), finished=("a",), bad_blocks=load.span.block_ids)
    orders = bench.step()
    assert orders.loads == ()
    assert bench.position("a") == 0
    bench.answer()
    bench.run()
    assert bench.free_blocks == bench.all_blocks


@pytest.mark.parametrize("scheduler", [Scheduler, AsyncScheduler])
def test_abort_while_loading_frees_when_the_worker_let_go(start: Start, scheduler: type) -> None:
    bench = start(scheduler=scheduler, is_async=scheduler is AsyncScheduler)
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    bench.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    orders = bench.step()
    assert orders.cancels == {load.load_id}
    assert bench.free_blocks < bench.all_blocks
    bench.answer()
    bench.answer(bench.ended(load), finished=("a",))
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_complete_chunks_are_saved_once(start: Start) -> None:
    bench = start(stored=0)
    bench.add("a", PROMPT, max_tokens=60)
    saved: list[int] = []
    while bench.scheduler.has_unfinished_requests():
        for save in bench.step().saves:
            assert len(save.block_ids) == len(save.chain_keys) * CHUNK_TOKENS // 16
            saved += range(save.first_chunk, save.first_chunk + len(save.chain_keys))
        bench.answer()
    assert saved == list(range((PROMPT + 59) // CHUNK_TOKENS))


def test_only_steps_that_just_compute_ask_nothing(start: Start) -> None:
    """In idle ones the worker gives its loader time, so they are not passed by."""
    bench = start(stored=0)
    bench.add("a", PROMPT, max_tokens=60)
    seen = set()
    while bench.scheduler.has_unfinished_requests():
        orders = bench.step()
        computes = bool(bench.last.num_scheduled_tokens)
        assert orders.is_idle is not computes
        assert orders.asks_nothing is (computes and not orders.saves)
        seen.add((computes, orders.asks_nothing))
        bench.answer()
    assert {(True, True), (True, False)} <= seen
    bench.step()
    assert not bench.step().asks_nothing


def test_stored_chunks_are_not_saved_again(start: Start) -> None:
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    bench.answer(bench.ended(load), finished=("a",))
    saves = bench.step().saves
    assert saves == ()


def test_local_hit_is_not_loaded(start: Start) -> None:
    bench = start(prefix_caching=True)
    bench.add("a", 2 * CHUNK_TOKENS + 1, max_tokens=1)
    load = bench.step_until_load()
    bench.answer(bench.ended(load), finished=("a",))
    bench.run()
    bench.add("b", PROMPT)
    load = bench.step_until_load()
    assert isinstance(load.span, BlockSpan)
    assert load.span.first_block == 2 * CHUNK_TOKENS // 16


def test_embeddings_bypass_the_store(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    bench = start()
    request = bench.add("a", PROMPT)
    request.request_id = "other"
    request.prompt_token_ids = None
    bench.side.add_request(request)
    bench.side.add_request(request)
    assert bench.side.tally.counts["unknown_requests"] == 2
    assert [record.message for record in caplog.records if "bypasses" in record.message] == [
        "kvstored bypasses request other: its prompt has embeddings instead of tokens"
    ]


def test_absent_daemon_is_a_miss(start: Start, shared_daemon: DaemonProcess) -> None:
    bench = start()
    shared_daemon.kill()
    try:
        bench.add("a", PROMPT)
        bench.run()
    finally:
        shared_daemon.start()
    assert bench.counts["computed_tokens"] >= PROMPT
    assert bench.free_blocks == bench.all_blocks


def test_hung_daemon_is_a_miss_after_the_deadline(
    start: Start, shared_daemon: DaemonProcess
) -> None:
    import os
    import signal

    bench = start(match_timeout_ms=2000)
    os.kill(shared_daemon.pid, signal.SIGSTOP)
    try:
        bench.add("a", PROMPT)
        bench.run()
    finally:
        os.kill(shared_daemon.pid, signal.SIGCONT)
    assert bench.counts["computed_tokens"] >= PROMPT
    assert "loads" not in bench.counts
    assert bench.free_blocks == bench.all_blocks


def test_request_that_may_not_read_saves_and_holds_no_lease(start: Start) -> None:
    """Bug: it had no keys, so that nothing of it was saved, and its leases ran until their end."""
    # A request that may not read runs at once, and could end before its look-up is answered.
    bench = start(stored=2 * CHUNK_TOKENS, match_wait_ms=MATCH_TIMEOUT_MS)
    released = Mock(wraps=bench.side.lookup.release)
    bench.side.lookup.release = released  # type: ignore[method-assign]
    bench.add("a", PROMPT).skip_reading_prefix_cache = True
    orders = bench.step_until(lambda orders: orders.saves)
    bench.run()
    assert [save.first_chunk for save in orders.saves] == [2]
    assert "loads" not in bench.counts
    (found,) = released.call_args.args
    assert found.leases


def test_answer_that_comes_behind_the_end_of_its_request_holds_no_lease(start: Start) -> None:
    """Bug: leases of aborted requests ran until their end, and a session has so many."""
    bench = start()
    answer: Future[Found] = Future()
    assert answer.set_running_or_notify_cancel(), "it is on its way"
    bench.side.lookup.ask = lambda *_, **__: PendingLookup(answer, time.monotonic() + 60)  # type: ignore[method-assign]
    bench.add("a", PROMPT)
    bench.step()
    bench.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    lease = Mock()
    answer.set_result(Found(leases=(lease,)))
    wait_until(lambda: lease.release.called)


def test_answer_that_comes_behind_its_deadline_holds_no_lease(start: Start) -> None:
    bench = start()
    answer: Future[Found] = Future()
    assert answer.set_running_or_notify_cancel(), "it is on its way"
    bench.side.lookup.ask = lambda *_, **__: PendingLookup(answer, time.monotonic())  # type: ignore[method-assign]
    bench.add("a", PROMPT)
    bench.run()
    lease = Mock()
    answer.set_result(Found(leases=(lease,)))
    wait_until(lambda: lease.release.called)


def test_computed_tokens_are_told_once_for_each_end(start: Start) -> None:
    """A step that tells nothing costs less than one that does."""
    bench = start(stored=0)
    bench.add("a", 40, max_tokens=20)
    told = []
    while bench.scheduler.has_unfinished_requests():
        bench.step()
        bench.answer()
        told.append(bench.counts.get("computed_tokens", 0))
    assert set(told[:-1]) == {0}
    assert told[-1] == 40 + 19


def test_store_is_asked_once_for_a_request(start: Start) -> None:
    """And never in a step, of which there are as many as tokens."""
    bench = start()
    asked = Mock(wraps=bench.side.lookup.ask)
    bench.side.lookup.ask = asked  # type: ignore[method-assign]
    bench.add("a", PROMPT, max_tokens=50)
    load = bench.step_until_load()
    bench.answer(bench.ended(load), finished=("a",))
    bench.run()
    assert asked.call_count == 1


def saved_chunks(bench: SchedulerBench, name: str, **options: Any) -> list[bytes]:
    """What the saves of a request store."""
    bench.add(name, PROMPT, **options)
    chain_keys: list[bytes] = []
    while len(chain_keys) < CHUNKS:
        orders = bench.step()
        chain_keys += [key for save in orders.saves for key in save.chain_keys]
        bench.answer()
    return chain_keys


def test_what_was_stored_before_a_reset_is_not_used(start: Start) -> None:
    """Weights that were updated in place have the fingerprint of those before."""
    bench = start()
    assert bench.scheduler.reset_connector_cache()
    bench.add("a", PROMPT)
    bench.step_until(lambda _: bench.last.num_scheduled_tokens)
    assert bench.position("a") == 0
    bench.answer()
    bench.run()
    assert "loads" not in bench.counts
    assert bench.free_blocks == bench.all_blocks


def test_what_is_stored_behind_a_reset_is_nobody_elses(start: Start) -> None:
    bench, other = start(stored=0), start(stored=0)
    bench.scheduler.reset_connector_cache()
    chain_keys = saved_chunks(bench, "a")
    bench.run()
    assert saved_chunks(bench, "b") == chain_keys
    bench.scheduler.reset_connector_cache()
    assert not set(saved_chunks(bench, "c")) & set(chain_keys)
    assert not set(saved_chunks(other, "a")) & set(chain_keys)


def test_reset_while_a_prefix_is_loaded_frees_its_blocks(start: Start) -> None:
    bench = start()
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    bench.scheduler.reset_connector_cache()
    bench.answer()
    orders = bench.step()
    assert orders.cancels == {load.load_id}
    bench.answer(bench.ended(load), finished=("a",), bad_blocks=load.span.block_ids)
    bench.run()
    assert bench.free_blocks == bench.all_blocks
