"""When to leave a daemon alone that answers too slowly."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLOW_LOOKUP_S = 1.0
PAUSE_S = 5.0


class Breaker:
    """Lets nobody wait for a daemon that hangs. Thread-safe.

    A call that takes longer than ``slow_s`` raises doubt as soon as somebody asks, whether it has
    ended or not. While one of them goes on, and for ``pause_s`` after the last has ended, no call
    is admitted; then one in each ``pause_s``, until one is fast. ``clock`` gives seconds.
    """

    def __init__(
        self,
        *,
        slow_s: float = SLOW_LOOKUP_S,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slow_s = slow_s
        self._pause_s = pause_s
        self._clock = clock
        self._lock = threading.Lock()
        self._started_s: dict[int, float] = {}
        self._next_call = 0
        self._is_doubted = False
        self._silent_until_s = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether the daemon is not known to hang: nothing but ``admits`` lets a trial through."""
        with self._lock:
            return not (self._is_doubted or self._is_hanging(self._clock()))

    def admits(self) -> bool:
        """Whether a call may be made now; who asks makes it."""
        with self._lock:
            now_s = self._clock()
            if self._is_hanging(now_s):
                return False
            if self._is_doubted:
                if now_s < self._silent_until_s:
                    return False
                self._silent_until_s = now_s + self._pause_s
            return True

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around a call: how long it takes is what the breaker goes by."""
        with self._lock:
            call, started_s = self._next_call, self._clock()
            self._next_call += 1
            self._started_s[call] = started_s
        try:
            yield
        finally:
            with self._lock:
                del self._started_s[call]
                now_s = self._clock()
                self._is_doubted = now_s - started_s > self._slow_s
                if self._is_doubted:
                    self._silent_until_s = now_s + self._pause_s

    def _is_hanging(self, now_s: float) -> bool:
        return any(now_s - started_s > self._slow_s for started_s in self._started_s.values())
