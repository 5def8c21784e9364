"""Mode cake in vLLM's real schedulers: the position jumps, and nothing is left behind."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import DaemonProcess

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from engine_adapters.vllm.messages.orders import LoadOrder, StepOrders
from engine_adapters.vllm.scheduler import CakeAsyncScheduler, CakeScheduler
from tests.engine_adapters.vllm.scheduler_bench import (
    CHUNK_TOKENS,
    MATCH_TIMEOUT_MS,
    SchedulerBench,
)
from tests.engine_adapters.vllm.stored_prefix import store_prefix
from tests.support.waiting import PATIENCE_S

CHUNKS = 10
PROMPT = CHUNKS * CHUNK_TOKENS + 5
STORED = CHUNKS * CHUNK_TOKENS

Start = Callable[..., SchedulerBench]


@pytest.fixture
def start(model: Path, shared_daemon: DaemonProcess) -> Iterator[Start]:
    benches: list[SchedulerBench] = []

    def make(scheduler: type, *, stored: int = STORED, **options: Any) -> SchedulerBench:
        bench = SchedulerBench(
            model, shared_daemon.socket_path, scheduler=scheduler, mode="cake", **options
        )
        tokens = [index % 500 for index in range(stored)]
        if stored:
            store_prefix(shared_daemon.socket_path, bench.side.lookup, tokens, salt=bench.salt)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        bench.close()


def begin(bench: SchedulerBench, *, in_flight: int) -> LoadOrder:
    """Adds the request; its load is ordered with its first step."""
    bench.add("a", PROMPT)
    load = bench.step_until_load()
    for _ in range(in_flight - 1):
        bench.step()
    return load


@pytest.mark.parametrize(
    ("scheduler", "in_flight"),
    [(Scheduler, 1), (CakeScheduler, 1), (AsyncScheduler, 2), (CakeAsyncScheduler, 2)],
)
def test_running_request_jumps_over_what_is_loaded(
    start: Start, scheduler: type, in_flight: int
) -> None:
    bench = start(scheduler, is_async=in_flight > 1)
    load = begin(bench, in_flight=in_flight)
    assert load.overtaken
    assert len(load.span.block_ids) * 16 == STORED
    first, computed = CHUNKS, []
    while bench.position("a") < STORED:
        computed.append((bench.position("a"), bench.last.num_scheduled_tokens["a"]))
        first = max(first - 2, 0)
        bench.answer(bench.loaded(load, first))
        bench.step()
    frontier = first * CHUNK_TOKENS
    assert bench.position("a") == STORED
    assert max(begin + count for begin, count in computed) >= frontier
    assert sum(count for _, count in computed) < STORED
    while bench.in_flight:
        bench.answer()
    assert not bench.side.overtakings
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_scheduler_class_ends_a_step_at_the_frontier(start: Start) -> None:
    bench = start(CakeScheduler, batch_tokens=512)
    load = begin(bench, in_flight=1)
    bench.answer(bench.loaded(load, 9))
    bench.step()
    assert bench.position("a") + bench.last.num_scheduled_tokens["a"] == 9 * CHUNK_TOKENS


def test_first_step_of_a_request_is_as_short_as_loading_is_fast(start: Start) -> None:
    """By what the requests before it have shown, with a doubt; nobody knows before the first."""
    bench = start(CakeScheduler, batch_tokens=512)
    counts = []
    for name in ("a", "b", "c"):
        bench.add(name, PROMPT)
        load = bench.step_until_load()
        counts.append(bench.last.num_scheduled_tokens[name])
        # Workers load whatever is not claimed.
        bench.answer(bench.loaded(load, counts[-1] // CHUNK_TOKENS))
        bench.run()
    assert counts == [CHUNKS // 2 * CHUNK_TOKENS, 2 * CHUNK_TOKENS, CHUNK_TOKENS]


def test_request_that_gets_its_blocks_late_is_not_overtaken_by_an_old_try(start: Start) -> None:
    """Bug: pointers of a try that got no blocks made a load that is waited for an overtaken one.

    Nobody would have said that it had ended.
    """
    bench = start(CakeScheduler, block_count=47, batch_tokens=64)
    bench.add("b", 64, first=100, max_tokens=60)
    bench.step_until(lambda _: bench.last.num_scheduled_tokens)
    reserve = bench.scheduler.kv_cache_manager.allocate_slots
    bench.scheduler.kv_cache_manager.allocate_slots = lambda *_, **__: None
    bench.answer()
    request = bench.add("a", PROMPT)
    deadline_s = time.monotonic() + PATIENCE_S
    while bench.side.matched_tokens(request, 0)[0] is None and time.monotonic() < deadline_s:
        time.sleep(0.001)
    assert bench.side.clipped_tokens("a", 0, 512) < 512
    # By now all that is stored lies in vLLM's own cache.
    assert bench.side.matched_tokens(request, STORED) == (0, False)
    assert bench.side.clipped_tokens("a", 0, 512) == 512
    bench.scheduler.kv_cache_manager.allocate_slots = reserve


def test_request_that_is_admitted_in_the_step_that_preempts_it_keeps_its_new_load(
    start: Start,
) -> None:
    """Bug: the new load was cancelled instead of the old one, whose end then had no request."""
    bench = start(CakeScheduler, match_wait_ms=MATCH_TIMEOUT_MS)
    old = begin(bench, in_flight=1)
    bench.answer()
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    orders = bench.step()
    assert bench.last.preempted_req_ids == {"a"}
    (new,) = orders.loads
    assert old.load_id in orders.cancels
    assert new.load_id not in orders.cancels
    bench.answer(bench.loaded(old, 0))
    bench.step()
    bench.answer(bench.loaded(new, 0), bench.ended(old))
    bench.step()
    bench.answer()
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_steps_are_whole_behind_a_load_that_lost_something(start: Start) -> None:
    bench = start(CakeScheduler)
    load = begin(bench, in_flight=1)
    bench.answer(bench.loaded(load, 6))
    bench.step()
    lost = bench.ended(load, lost=(5,))
    bench.answer(lost)
    bench.step()
    assert bench.last.num_scheduled_tokens["a"] == 128


def test_all_blocks_are_named_with_the_first_step(start: Start) -> None:
    bench = start(Scheduler)
    load = begin(bench, in_flight=1)
    (new,) = bench.last.scheduled_new_reqs
    assert tuple(new.block_ids[0][: len(load.span.block_ids)]) == load.span.block_ids


def test_jump_waits_for_all_ranks(start: Start) -> None:
    """One rank that has everything is not enough: each has blocks of its own to fill."""
    bench = start(Scheduler, tensor_size=2)
    load = begin(bench, in_flight=1)
    bench.answer(bench.loaded(load, 0))
    bench.step()
    assert bench.position("a") < STORED
    bench.answer(bench.loaded(load, 0), bench.loaded(load, 1))
    bench.step()
    assert bench.position("a") == STORED


def test_a_load_without_a_jump_burdened_all_later_steps(start: Start) -> None:
    """Bug: what was computed was claimed until the request's end, and each step woke the worker."""
    bench = start(Scheduler)
    load = begin(bench, in_flight=1)
    while bench.position("a") < STORED:
        bench.answer()
        bench.step()
    bench.answer(bench.ended(load))
    for _ in range(3):
        orders = bench.step()
        bench.answer()
    assert orders.asks_nothing
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_claims_grow_with_every_step(start: Start) -> None:
    bench = start(Scheduler)
    begin(bench, in_flight=1)
    bench.answer()
    orders = bench.step()
    assert list(orders.claims.values()) == [2 * 128 // CHUNK_TOKENS]


@pytest.mark.parametrize("in_flight", [1, 2])
def test_abort_while_loading_cancels_and_frees(start: Start, in_flight: int) -> None:
    bench = start(AsyncScheduler if in_flight > 1 else Scheduler, is_async=in_flight > 1)
    load = begin(bench, in_flight=in_flight)
    bench.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    orders = bench.step()
    assert orders.cancels == {load.load_id}
    assert not bench.side.overtakings
    while bench.in_flight:
        bench.answer(bench.ended(load))
    bench.step()
    bench.answer()
    assert bench.free_blocks == bench.all_blocks


def preempted(start: Start) -> tuple[SchedulerBench, LoadOrder, StepOrders]:
    """A load that runs when an older request needs a block that only its request has."""
    # The look-up takes no step: the older request has tokens for a few only.
    bench = start(Scheduler, block_count=47, batch_tokens=32, match_wait_ms=MATCH_TIMEOUT_MS)
    bench.add("b", 64, first=100, max_tokens=60)
    bench.step_until(lambda _: bench.last.num_scheduled_tokens)
    bench.answer()
    load = begin(bench, in_flight=1)
    bench.answer()
    orders = bench.step_until(lambda _: bench.last.preempted_req_ids)
    return bench, load, orders


def test_preemption_while_loading_cancels_before_blocks_are_given_away(start: Start) -> None:
    bench, load, orders = preempted(start)
    assert bench.last.preempted_req_ids == {"a"}
    assert orders.cancels == {load.load_id}
    assert not bench.side.overtakings
    bench.answer(bench.ended(load))
    bench.run()
    assert not bench.side.overtakings
    assert bench.free_blocks == bench.all_blocks


def test_preempted_request_is_loaded_again(start: Start) -> None:
    bench, first, _ = preempted(start)
    bench.answer(bench.ended(first))
    second = bench.step_until_load()
    assert second.load_id != first.load_id
    assert second.chain_keys == first.chain_keys


@pytest.mark.parametrize("is_async", [False, True])
def test_v2_runner_gets_the_position_by_resuming(start: Start, is_async: bool) -> None:
    bench = start(CakeAsyncScheduler if is_async else CakeScheduler, is_async=is_async)
    bench.scheduler.use_v2_model_runner = True
    load = begin(bench, in_flight=2 if is_async else 1)
    bench.answer(bench.loaded(load, 0))
    bench.step()
    assert "a" in (bench.last.preempted_req_ids or ())
    (new,) = bench.last.scheduled_new_reqs
    assert new.num_computed_tokens == STORED
    assert tuple(new.block_ids[0][: len(load.span.block_ids)]) == load.span.block_ids
    assert bench.last.num_scheduled_tokens["a"] == PROMPT - STORED
    while bench.in_flight:
        bench.answer()
    bench.scheduler.use_v2_model_runner = False
    bench.run()
    assert bench.free_blocks == bench.all_blocks


def test_jump_counts_as_external_hit(start: Start) -> None:
    bench = start(CakeScheduler)
    load = begin(bench, in_flight=1)
    bench.answer(bench.loaded(load, 0))
    assert bench.external_hits == STORED - 128
    assert bench.counts["jumped_tokens"] == STORED - 128


def test_jumped_blocks_are_hit_locally_later(start: Start) -> None:
    bench = start(Scheduler, prefix_caching=True)
    load = begin(bench, in_flight=1)
    bench.answer(bench.loaded(load, 0))
    bench.run()
    bench.add("c", PROMPT)
    bench.step_until(lambda _: "c" in bench.last.num_scheduled_tokens)
    assert bench.position("c") >= STORED


def test_jump_adds_to_what_was_cached_locally(start: Start) -> None:
    bench = start(Scheduler, prefix_caching=True)
    bench.add("b", 130, max_tokens=1)
    bench.run()
    request = bench.add("a", PROMPT)
    stats = request.prefill_stats
    load = bench.step_until_load()
    bench.answer(bench.loaded(load, 0))
    assert stats is not None
    assert stats.num_local_cached_tokens == 128
    assert stats.num_external_cached_tokens == STORED - 128 - 128
