"""How LMCache hears of what is done: a descriptor that it polls, and a list that it drains."""

import os
import threading
from contextlib import suppress

Completion = tuple[int, bool, str, list[bool] | None]
"""Number of the call, whether it succeeded, why not, and what became of each key."""


class Completions:
    """What was done and not drained yet. Thread-safe."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._done: list[Completion] = []
        self._is_closed = False

    def add(self, completion: Completion) -> None:
        """Lets LMCache know; does nothing after ``close``."""
        with self._lock:
            if not self._is_closed:
                self._done.append(completion)
                os.eventfd_write(self.descriptor, 1)

    def drain(self) -> list[Completion]:
        """All that was not drained before; does not wait."""
        with self._lock:
            if not self._is_closed:
                with suppress(BlockingIOError):
                    os.eventfd_read(self.descriptor)
            done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Closes the descriptor. A second call does nothing."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self.descriptor)
