"""Measures what a stopped client costs the others: rounds with and without it, in turns.

A ratio of timings belongs into a measurement, not into a test: other load on the machine
would decide it. The turns and the median make it hold on a busy one.
"""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.clients.worker_process import WorkerProcess
from tests.support.daemon import DaemonProcess

CLIENTS = 8
ROUND_S = 4.0
WARM_UP_S = 2.0
RATIO_MAX = 1.2
PERCENTILE = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class StopResult:
    """One round: the 99th percentile of all operations of the seven others, in seconds."""

    alone_s: float
    stopped_s: float
    alone_count: int
    stopped_count: int

    @property
    def ratio(self) -> float:
        """With the stopped client to without."""
        return self.stopped_s / self.alone_s


def measure(daemon: DaemonProcess, *, rounds: int) -> list[StopResult]:
    """Runs the rounds; fails when an operation of any client was wrong, missed or lost."""
    phases: list[tuple[float, float]] = []
    with contextlib.ExitStack() as processes:
        workers = [
            processes.enter_context(WorkerProcess(daemon.socket_path, number))
            for number in range(CLIENTS)
        ]
        for worker in workers:
            worker.wait_ready()
        *others, stopped = workers
        for worker in others:
            worker.run()
        time.sleep(WARM_UP_S)
        for _ in range(rounds):
            phases.append(timed_phase())
            stopped.run()
            time.sleep(WARM_UP_S / 4)
            stopped.stop()
            phases.append(timed_phase())
            stopped.go_on()
            stopped.idle()
        operations = [part for worker in others for part in worker.end()]
        stopped.end()
    return [
        result_of(operations, alone, with_stopped)
        for alone, with_stopped in zip(phases[::2], phases[1::2], strict=True)
    ]


def timed_phase() -> tuple[float, float]:
    """Begin and end of a phase that lasts a round."""
    began = time.monotonic()
    time.sleep(ROUND_S)
    return began, time.monotonic()


def result_of(
    operations: Sequence[tuple[str, float, float]],
    alone: tuple[float, float],
    with_stopped: tuple[float, float],
) -> StopResult:
    """The result of one round from the operations of the whole run."""
    seconds = [
        [lasted for _, began, lasted in operations if first <= began < last]
        for first, last in (alone, with_stopped)
    ]
    percentiles = [statistics.quantiles(part, n=100)[PERCENTILE - 1] for part in seconds]
    return StopResult(
        alone_s=percentiles[0],
        stopped_s=percentiles[1],
        alone_count=len(seconds[0]),
        stopped_count=len(seconds[1]),
    )
