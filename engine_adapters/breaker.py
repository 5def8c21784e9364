"""When to leave a daemon alone that answers too slowly."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine_adapters.slow_calls import SlowCalls

SLOW_LOOKUP_S = 1.0
PAUSE_S = 5.0


class Breaker:
    """Lets nobody wait for a daemon that hangs, by a ``SlowCalls`` of its own. Thread-safe.

    ``clock`` gives seconds.
    """

    def __init__(
        self,
        *,
        slow_s: float = SLOW_LOOKUP_S,
        pause_s: float = PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = SlowCalls(slow_s=slow_s, pause_s=pause_s)

    @property
    def call_count(self) -> int:
        """Calls that go on."""
        return self._calls.call_count

    @property
    def is_closed(self) -> bool:
        """Whether the daemon is not known to hang: nothing but ``admits`` lets a trial through."""
        with self._lock:
            return not self._calls.is_raised(self._clock())

    def admits(self) -> bool:
        """Whether a call may be made now; the one that asks makes it."""
        with self._lock:
            return self._calls.admits(self._clock())

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Around a call: how long it takes is what the breaker goes by."""
        with self._lock:
            call = self._calls.begin(self._clock())
        try:
            yield
        finally:
            with self._lock:
                self._calls.end(call, self._clock())
