"""The thread on which loads run."""

import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine_adapters.restore import ComputeCost, LoadClock, StepCosts
from engine_adapters.vllm.messages.orders import LoadEnd
from engine_adapters.vllm.worker_side import loader as loader_module
from engine_adapters.vllm.worker_side.load_bound import LOOK_S
from engine_adapters.vllm.worker_side.loader import Loader
from tests.engine_adapters.vllm.engine_client import EngineClient
from tests.engine_adapters.vllm.worker_side.load_job_bench import CHUNKS, Bench, client
from tests.support.waiting import wait_until

__all__ = ["client"]


class NotedClock(LoadClock):
    """Counts how often it rests."""

    def __init__(self) -> None:
        super().__init__()
        self.rests = 0

    def rest(self) -> None:
        self.rests += 1
        super().rest()


def run_after_a_pause(bench: Bench, loader: Loader, pause: Callable[[], None]) -> LoadEnd:
    """A load that begins when the loader has rested; its chunks come when it was looked at."""
    number = len(bench.reads)
    pause()
    loader.start(replace(bench.order, load_id=number), claimed_chunks=0)
    wait_until(lambda: len(bench.reads) > number)
    # Longer than from one look of the bound to the next.
    time.sleep(2 * LOOK_S)
    for chunk in range(CHUNKS):
        bench.reads[number].deliver(chunk)
    bench.reads[number].finish()
    wait_until(lambda: not loader.is_busy)
    (end,) = loader.take_ends()
    return end


def test_the_idle_time_before_a_load_was_that_loads(
    client: EngineClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a load that began after a pause had at once been waited for as long as that, so that it
    was given up."""
    late_s = [0.0]
    wall = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s[0], sleep=time.sleep)
    monkeypatch.setattr(loader_module, "time", wall)
    costs = StepCosts(ComputeCost(step_s=0.0, token_s=10.0, attention_s=0.0), step_tokens=64)
    bench, clock = Bench(client, overtaken=False, costs=costs, timeout_s=600.0), NotedClock()
    loader = Loader(replace(bench.place, clock=clock, least_wait_s=0.0))

    def pause() -> None:
        rests = len(bench.reads) + 1
        wait_until(lambda: clock.rests >= rests)
        # Longer than the eight minutes that computing takes.
        late_s[0] += 3600.0

    assert [run_after_a_pause(bench, loader, pause).lost_chunks for _ in range(2)] == [(), ()]
    assert clock.now_s < 3600.0
    loader.close()
