"""The thread on which loads run."""

from dataclasses import replace

from engine_adapters.restore import LoadClock
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


def test_the_idle_time_before_a_load_was_that_loads(client: EngineClient) -> None:
    """Bug: a load that began after a pause had at once been waited for as long as that, so that it
    was given up."""
    bench, clock = Bench(client, overtaken=False), NotedClock()
    loader = Loader(replace(bench.place, clock=clock))
    wait_until(lambda: clock.rests > 0)
    loader.start(bench.order, claimed_chunks=0)
    wait_until(lambda: len(bench.reads) == 1)
    bench.bring(*range(CHUNKS))
    bench.reads[0].finish()
    loader.close()
