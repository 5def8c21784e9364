"""The peer's process, seen from the process that measures it."""

import contextlib
import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.benchmark import BenchmarkError
from benchmarks.peers.worker import Task

WORKER = Path(__file__).with_name("worker.py")
_STOP_TIMEOUT_S = 60.0


class PeerProcess:
    """``worker`` under the peer's interpreter. Not thread-safe.

    ``description`` names the peer as it was opened. Raises BenchmarkError with the worker's
    sentence, or the last line of its log, when it failed. As a context manager it ends
    the process on exit.
    """

    def __init__(self, interpreter: Path, task: Task, *, log: Path, worker: Path = WORKER) -> None:
        self._log = log
        with log.open("w") as errors:
            try:
                self._child = subprocess.Popen(
                    # Neither this folder nor this project is on the peer's path.
                    [str(interpreter), "-I", str(worker)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            except OSError as error:
                raise BenchmarkError(f"{interpreter} cannot be started: {error}") from error
        try:
            self.description: str = self._ask(asdict(task))
        except BaseException:
            self._end(kill=True)
            raise

    def put(self, sequence: int) -> tuple[float, float]:
        """Seconds until the bytes are on media, and until a restart would find them."""
        answer = self._ask({"verb": "put", "sequence": sequence})
        return answer["on_media_s"], answer["findable_s"]

    def get(self, sequence: int) -> float:
        """Seconds of one read."""
        read_s: float = self._ask({"verb": "get", "sequence": sequence})["read_s"]
        return read_s

    def _ask(self, message: dict[str, Any]) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise BenchmarkError(f"the peer's process has ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(f"the peer failed: {answer['error']}")
        return answer["result"]

    def _last_words(self) -> str:
        lines: Sequence[str] = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def _end(self, *, kill: bool) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if kill:
            self._child.kill()
        # What a peer that has ended did not hear of is still in the pipe's buffer.
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(kill=error is not None)
