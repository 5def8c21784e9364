"""A wrapper that limits the rate of a device, so that slow devices can be studied on fast ones."""

import time
from collections.abc import Sequence
from threading import Lock
from typing import Protocol

from kvstored.io.device import Device
from kvstored.io.passing import PassingDevice


class Clock(Protocol):
    """The time that a throttle lives in; the module ``time`` is one."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Waits; called outside of every lock."""


LATENESS_S_MAX = 0.05
"""How much of the lateness of a sleep is made up for."""


class RateLimit:
    """A rate shared by all threads: each transfer takes ``byte_count / bytes_per_s``.

    The transfers follow each other on one line of time, which may lag behind the clock
    by as much as the last sleep took too long. So the long-run rate of a busy device is
    exact although sleeps are late, and an idle device saves up nothing: a short burst
    is as slow as a long one.
    """

    def __init__(self, bytes_per_s: float, clock: Clock) -> None:
        if bytes_per_s <= 0:
            raise ValueError(f"a rate must be above 0 bytes/s, not {bytes_per_s}")
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = Lock()
        self._free_at_s = clock.monotonic()
        self._lateness_s = 0.0

    def reserve(self, byte_count: int) -> float:
        """Takes the next place on the line; the clock's time at which the transfer ends."""
        with self._lock:
            start_s = max(self._free_at_s, self._clock.monotonic() - self._lateness_s)
            self._free_at_s = start_s + byte_count / self._bytes_per_s
            return self._free_at_s

    def wait_until(self, end_s: float) -> None:
        """Sleeps until ``end_s`` by the clock; a transfer that took longer does not sleep."""
        lateness_s = 0.0
        while (remaining_s := end_s - self._clock.monotonic()) > 0:
            self._clock.sleep(remaining_s)
            lateness_s = min(max(self._clock.monotonic() - end_s, 0.0), LATENESS_S_MAX)
        with self._lock:
            self._lateness_s = lateness_s


class ThrottledDevice(PassingDevice):
    """Gives ``inner`` a rate of its own for reads and for writes.

    A transfer ends no earlier than its limit allows; flushes are not limited. The
    rates are bytes per second, over all threads together.
    """

    def __init__(
        self,
        inner: Device,
        *,
        read_bytes_per_s: float,
        write_bytes_per_s: float,
        clock: Clock = time,
    ) -> None:
        super().__init__(inner)
        self._reads = RateLimit(read_bytes_per_s, clock)
        self._writes = RateLimit(write_bytes_per_s, clock)

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads at the limited rate; raises DeviceError."""
        end_s = self._reads.reserve(sum(buffer.nbytes for buffer in buffers))
        self.inner.readv(buffers, offset)
        self._reads.wait_until(end_s)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes at the limited rate; raises DeviceError."""
        end_s = self._writes.reserve(sum(buffer.nbytes for buffer in buffers))
        self.inner.writev(buffers, offset)
        self._writes.wait_until(end_s)
