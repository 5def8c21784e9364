"""Measures how long calls take."""

import threading
from bisect import bisect_left

from kvstored.call_times import BUCKETS_S, CallTimes


class Latencies:
    """Times of calls by verb. Thread-safe."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}
        self._refused: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, verb: str, duration_s: float, *, is_refused: bool) -> None:
        """One call has ended."""
        with self._lock:
            counts = self._counts.setdefault(verb, [0] * (len(BUCKETS_S) + 1))
            counts[bisect_left(BUCKETS_S, duration_s)] += 1
            self._sums_s[verb] = self._sums_s.get(verb, 0.0) + duration_s
            self._refused[verb] = self._refused.get(verb, 0) + is_refused

    def times(self) -> dict[str, CallTimes]:
        """All verbs that were called, as they are now."""
        with self._lock:
            return {
                verb: CallTimes(tuple(counts), self._sums_s[verb], self._refused[verb])
                for verb, counts in self._counts.items()
            }
