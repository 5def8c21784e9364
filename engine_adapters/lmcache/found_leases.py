"""Leases of what look-ups found: LMCache never says that it needs one no more."""

import threading
import time
from collections import deque
from collections.abc import Callable

from kvstored_client import Lease

LEASES_MAX = 2048
OBJECTS_MAX = 131_072
"""Half of what the daemon grants a session: with more it would refuse look-ups."""


class FoundLeases:
    """Keeps leases of ``lease_s``; the oldest ends early where there are too many. Thread-safe.

    ``clock`` gives seconds.
    """

    def __init__(
        self,
        *,
        lease_s: float,
        lease_count_max: int = LEASES_MAX,
        object_count_max: int = OBJECTS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lease_s = lease_s
        self._lease_count_max = lease_count_max
        self._object_count_max = object_count_max
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: deque[tuple[float, Lease]] = deque()
        self._object_count = 0

    def keep(self, lease: Lease) -> None:
        """Takes a lease that was just granted."""
        with self._lock:
            self._leases.append((self._clock() + self._lease_s, lease))
            self._object_count += lease.chunk_count
            early = self._taken_out()
        for each in early:
            each.release()

    def _taken_out(self) -> list[Lease]:
        """Forgets those that have expired, and returns those that have to go before.

        The last one stays, however much it holds.
        """
        now_s = self._clock()
        early = []
        while len(self._leases) > 1 and (
            self._leases[0][0] <= now_s
            or len(self._leases) > self._lease_count_max
            or self._object_count > self._object_count_max
        ):
            end_s, lease = self._leases.popleft()
            self._object_count -= lease.chunk_count
            if end_s > now_s:
                early.append(lease)
        return early
