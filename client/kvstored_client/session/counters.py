"""Counts of what happened, since a failure is a miss and not an exception."""

import threading
from collections import Counter

from kvstored_client.errors import StoreError


class Counters:
    """Monotonic counters by name. Thread-safe."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str) -> int:
        """Counts one more and returns the new count."""
        with self._lock:
            self._counts[name] += 1
            return self._counts[name]

    def add_failure(self, verb: str, error: StoreError) -> int:
        """Counts a failed call by verb and by kind of error; returns the count of that kind."""
        self.add(f"{verb}_failed")
        return self.add(f"{verb}_failed_{type(error).__name__.removesuffix('Error')}")

    def counts(self) -> dict[str, int]:
        """All counts that are not 0."""
        with self._lock:
            return dict(self._counts)
