"""Worker processes from the outside: started, told what to do, stopped and continued."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from tests.support.waiting import PATIENCE_S, wait_until


class WorkerProcess:
    """One worker. Leaving ``with`` kills it when it has not ended."""

    def __init__(self, path: Path, number: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.clients.worker", str(path), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Returns when its chunks are stored."""
        self._expect("ready")

    def run(self) -> None:
        """Lets it work."""
        self._tell("run")

    def count(self) -> int:
        """Operations that it has made so far."""
        self._tell("count")
        return int(self._line())

    def wait_operations(self, count: int) -> None:
        """Returns when it has made so many more."""
        wanted = self.count() + count
        wait_until(lambda: self.count() >= wanted)

    def idle(self) -> None:
        """Lets it finish its operation and wait."""
        self._tell("idle")
        self._expect("idle")

    def end(self) -> list[tuple[str, float, float]]:
        """Ends it; every operation that it made: kind, begin, seconds."""
        self._tell("end")
        self._expect("idle")
        operations = json.loads(self._line())
        assert self._process.wait(PATIENCE_S) == 0
        return [(kind, began, seconds) for kind, began, seconds in operations]

    def stop(self) -> None:
        """SIGSTOP, wherever it is."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def _tell(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        line = self._line()
        assert line == word, f"the worker said {line!r} instead of {word!r}"

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
