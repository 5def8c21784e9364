"""A worker as the benchmark's own, whose peer keeps copies in memory. Runs by its path, too."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.worker import Task, obey_standard_input


class MemoryPeer:
    """Stores chunks in a dict and notes what was asked of it."""

    description = "a dict"

    def __init__(self, task: Task, memory: NDArray[np.uint8]) -> None:
        print("peers print what they like")  # noqa: T201
        self.chunks = memory.reshape(task.chunk_count, task.chunk_bytes)
        self.stored: dict[int, NDArray[np.uint8]] = {}
        self.calls: list[str] = []

    def put(self, keys: Sequence[int]) -> None:
        """Copies the memory."""
        self.calls.append("put")
        for key, chunk in zip(keys, self.chunks, strict=True):
            assert key not in self.stored
            self.stored[key] = chunk.copy()

    def sync(self) -> None:
        """Notes the call only."""
        self.calls.append("sync")

    def checkpoint(self) -> None:
        """Notes the call only."""
        self.calls.append("checkpoint")

    def get(self, keys: Sequence[int]) -> None:
        """Copies to the memory; raises KeyError for what is not stored."""
        self.calls.append("get")
        for key, chunk in zip(keys, self.chunks, strict=True):
            chunk[:] = self.stored[key]

    def delete(self, keys: Sequence[int]) -> None:
        """Forgets the chunks; raises KeyError for what is not stored."""
        self.calls.append("delete")
        for key in keys:
            del self.stored[key]


if __name__ == "__main__":
    obey_standard_input(MemoryPeer)
