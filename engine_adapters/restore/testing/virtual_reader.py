"""A reader under a virtual clock: one chunk after the other, as the daemon reads. Pure."""

import math
from collections import deque
from collections.abc import Callable, Sequence


class VirtualReader:
    """Reads ``order``; before each chunk it looks whether the engine has reached it."""

    def __init__(
        self, order: Sequence[int], chunk_s: Callable[[int, float], float], *, latency_s: float
    ) -> None:
        self._waiting = deque(order)
        self._chunk_s = chunk_s
        self._current: int | None = None
        self._free_s = latency_s
        self.read_count = 0

    @property
    def is_idle(self) -> bool:
        """True when nothing will arrive any more."""
        return self._current is None and not self._waiting

    @property
    def next_s(self) -> float:
        """When the chunk in flight arrives, or the next one is begun."""
        return self._free_s

    def advance(self, now_s: float, reached_chunks: int) -> tuple[list[int], list[int]]:
        """The chunks that arrived until now, and those that turned out to be lost.

        ``reached_chunks`` is what the engine has published since the last call.
        """
        arrived: list[int] = []
        lost: list[int] = []
        while self._free_s <= now_s:
            if self._current is not None:
                arrived.append(self._current)
                self._current = None
            while self._waiting and self._waiting[0] < reached_chunks:
                self._waiting.popleft()
            if not self._waiting:
                break
            chunk = self._waiting.popleft()
            duration_s = self._chunk_s(chunk, self._free_s)
            if math.isinf(duration_s):
                lost.append(chunk)
            else:
                self._current = chunk
                self._free_s += duration_s
                self.read_count += 1
        return arrived, lost
