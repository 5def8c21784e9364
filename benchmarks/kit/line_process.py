"""A child process that answers each line of JSON with one."""

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from benchmarks.benchmark import BenchmarkError

_STOP_TIMEOUT_S = 60.0


class LineProcess:
    """A child that is asked in lines. Not thread-safe.

    ``send`` and ``reply`` are apart so that several children can work at once; every message is
    followed by one ``reply``. What the child writes to stderr goes to ``log``, or to where this
    process's goes. Raises BenchmarkError with ``name`` and the child's sentence, or the last
    line of its log, when it has failed. As a context manager it ends the child on exit.
    """

    def __init__(self, command: Sequence[str], *, name: str, log: Path | None = None) -> None:
        self._name = name
        self._log = log
        with contextlib.ExitStack() as stack:
            errors = None if log is None else stack.enter_context(log.open("w"))
            try:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
            except OSError as error:
                raise BenchmarkError(f"{command[0]} cannot be started: {error}") from error

    def send(self, message: dict[str, Any]) -> None:
        """Sends a message; its answer is fetched by ``reply``."""
        assert self._child.stdin is not None
        # The reply reports a child that has ended.
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps(message) + "\n")
            self._child.stdin.flush()

    def reply(self) -> Any:
        """Waits for the answer to the oldest message."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise BenchmarkError(f"{self._name} has ended: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchmarkError(f"{self._name} failed: {answer['error']}")
        return answer["result"]

    def end(self, *, kill: bool) -> None:
        """Ends the child: by the end of its input, or at once."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        if kill:
            self._child.kill()
        # What a child that has ended did not hear of is still in the pipe's buffer.
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()

    def _last_words(self) -> str:
        if self._log is None:
            return "its cause is above"
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(kill=kind is not None)
