"""Client processes, seen from the process that measures them."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage.timeline import Timeline
from benchmarks.workload import Workload

START_DELAY_S = 0.3
"""From the request until the common start: enough for all processes to have heard of it."""
_STOP_TIMEOUT_S = 60.0


class WorkerProcess:
    """One client process (``benchmarks.storage.worker``). Not thread-safe.

    ``ask`` and ``reply`` are apart so that several can work at once; every ``ask`` is
    followed by one ``reply``, which raises BenchmarkError with the worker's sentence.
    As a context manager it ends the process on exit.
    """

    def __init__(self, workload: Workload, seed: int) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.storage.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._send({"workload": asdict(workload), "seed": seed})

    def ask(self, verb: str, **arguments: Any) -> None:
        """Sends a request."""
        self._send({"verb": verb, "arguments": arguments})

    def reply(self) -> Any:
        """Waits for the reply to the oldest request."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise BenchmarkError("a client process has ended; its cause is above")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(f"a client process failed: {answer['error']}")
        return answer["result"]

    def timeline(self) -> Timeline:
        """The reply to a read or a put."""
        return Timeline(tuple((moment, count) for moment, count in self.reply()))

    def _send(self, message: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise BenchmarkError("a client process has ended; its cause is above") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._child.kill()
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()


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
