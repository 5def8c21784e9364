"""Client processes, seen from the process that measures them."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.kit.line_process import LineProcess
from benchmarks.storage.timeline import Timeline
from benchmarks.workload import Workload

START_DELAY_S = 0.3
"""From the request until the common start: enough for all processes to have heard of it."""


class WorkerProcess(LineProcess):
    """One client process (``benchmarks.storage.worker``). Not thread-safe.

    ``ask`` and ``reply`` are apart so that several can work at once; every ``ask`` is
    followed by one ``reply``, which raises BenchmarkError with the worker's sentence.
    As a context manager it ends the process on exit.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        command = [sys.executable, "-m", "benchmarks.storage.worker"]
        super().__init__(command, name="a client process")
        self.send({"workload": asdict(workload), "seed": seed})

    def ask(self, verb: str, **arguments: Any) -> None:
        """Sends a request."""
        self.send({"verb": verb, "arguments": arguments})

    def timeline(self) -> Timeline:
        """The reply to a read or a put."""
        return Timeline(tuple((moment, count) for moment, count in self.reply()))


def connect(workers: Sequence[WorkerProcess], socket: Path) -> None:
    """Lets all workers begin a session with the daemon."""
    for worker in workers:
        worker.ask("connect", socket=str(socket))
    for worker in workers:
        worker.reply()


def disconnect(workers: Sequence[WorkerProcess]) -> None:
    """Ends the sessions of all workers."""
    for worker in workers:
        worker.ask("close")
    for worker in workers:
        worker.reply()


def read_together(
    workers: Sequence[WorkerProcess], names: Sequence[Sequence[str]]
) -> list[Timeline]:
    """Each worker reads its sequences, all from the same moment on."""
    start = time.monotonic() + START_DELAY_S
    for worker, own in zip(workers, names, strict=True):
        worker.ask("read", names=list(own), start=start)
    return [worker.timeline() for worker in workers]
