"""The peer's process, seen from the process that measures it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.kit.line_process import LineProcess
from benchmarks.peers.worker import Task

WORKER = Path(__file__).with_name("worker.py")


class PeerProcess(LineProcess):
    """``worker`` under the peer's interpreter. Not thread-safe.

    ``description`` names the peer as it was opened. Raises BenchmarkError with the worker's
    sentence, or the last line of its log, when it failed. As a context manager it ends
    the process on exit.
    """

    def __init__(self, interpreter: Path, task: Task, *, log: Path, worker: Path = WORKER) -> None:
        # Neither this folder nor this project is on the peer's path.
        super().__init__([str(interpreter), "-I", str(worker)], name="the peer", log=log)
        try:
            self.description: str = self._ask(asdict(task))
        except BaseException:
            self.end(kill=True)
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
        self.send(message)
        return self.reply()
