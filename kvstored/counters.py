"""Named monotonic counters that many threads may add to."""

import threading
from collections import Counter


class Counters:
    """Counters since start. Thread-safe."""

    def __init__(self) -> None:
        self._values: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, amount: int = 1) -> None:
        """Adds to one counter; the first call makes it."""
        with self._lock:
            self._values[name] += amount

    def values(self) -> dict[str, int]:
        """All counters as they are now."""
        with self._lock:
            return dict(self._values)
