"""What the daemon hears of requests that wait in vLLM's real scheduler."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstored_client import Client
from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

from vllm.v1.core.sched.scheduler import Scheduler

from tests.engine_adapters.vllm.scheduler_bench import (
    CHUNK_TOKENS,
    RequestStatus,
    SchedulerBench,
)
from tests.engine_adapters.vllm.stored_prefix import store_prefix

CHUNKS = 5
PROMPT = CHUNKS * CHUNK_TOKENS + 10
BLOCKS = 30
"""One request at a time has room."""

Start = Callable[..., SchedulerBench]


@pytest.fixture
def start(model: Path, shared_daemon: DaemonProcess) -> Iterator[Start]:
    benches: list[SchedulerBench] = []

    def make(**options: Any) -> SchedulerBench:
        bench = SchedulerBench(
            model, shared_daemon.socket_path, scheduler=Scheduler, block_count=BLOCKS, **options
        )
        benches.append(bench)
        store_prefix(
            shared_daemon.socket_path,
            bench.side.lookup,
            list(range(CHUNKS * CHUNK_TOKENS)),
            salt=bench.salt,
        )
        return bench

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def waiting(shared_daemon: DaemonProcess) -> Iterator[Callable[[], int]]:
    """How many requests wait, as the daemon knows."""
    with Client(shared_daemon.socket_path, arena_bytes="1MiB", strict=True) as client:
        yield lambda: client.admin.stats().waiting_request_count


def test_requests_without_blocks_wait_until_they_have_some(
    start: Start, waiting: Callable[[], int]
) -> None:
    bench = start()
    bench.add("runs", PROMPT, first=100, max_tokens=40)
    bench.step_until(lambda _: "runs" in bench.last.num_scheduled_tokens)
    bench.add("stored", PROMPT)
    bench.add("too", PROMPT)
    bench.add("unstored", PROMPT, first=200)
    # Nothing is stored of the last one, and the first one waited for nothing.
    wait_until(lambda: waiting() == 2)
    bench.answer()
    load = bench.step_until_load()
    bench.answer(bench.ended(load), finished=("stored",))
    wait_until(lambda: waiting() == 1)
    load = bench.step_until_load()
    bench.answer(bench.ended(load), finished=("too",))
    wait_until(lambda: waiting() == 0)
    bench.run()
    assert waiting() == 0


def test_a_request_that_is_aborted_waits_no_more(start: Start, waiting: Callable[[], int]) -> None:
    bench = start()
    bench.add("runs", PROMPT, first=100)
    bench.step_until(lambda _: "runs" in bench.last.num_scheduled_tokens)
    bench.add("stored", PROMPT)
    wait_until(lambda: waiting() == 1)
    bench.scheduler.finish_requests("stored", RequestStatus.FINISHED_ABORTED)
    wait_until(lambda: waiting() == 0)
    bench.run()


def test_what_a_preempted_request_saved_waits_before_all_others(
    start: Start, waiting: Callable[[], int]
) -> None:
    """Two grow until one of them has to give its blocks back."""
    bench = start(prefix_caching=False)
    bench.add("first", 4 * CHUNK_TOKENS - 60, first=100, max_tokens=400)
    bench.add("second", 4 * CHUNK_TOKENS - 60, first=200, max_tokens=400)
    bench.step_until(lambda _: bench.last.preempted_req_ids)
    wait_until(lambda: waiting() == 1)
    bench.answer()
    bench.scheduler.finish_requests(["first", "second"], RequestStatus.FINISHED_ABORTED)
    wait_until(lambda: waiting() == 0)
