"""Which devices have failed stop: chunks on them are misses, and nothing is written there."""

import logging
import threading
from collections import Counter
from collections.abc import Callable

from kvstored.counters import Counters
from kvstored.io.device import DeviceError, NotBegunError

LOGGER = logging.getLogger(__name__)

WRITE_ERRORS_MAX = 3
"""Consecutive failed writes after which a device counts as gone."""


class DeviceFailures:
    """Hears of every failed transfer and flush. Thread-safe.

    ``on_lost`` hears that a device has failed stop: all its chunks are misses from now on.
    """

    def __init__(self, *, counters: Counters, on_lost: Callable[[], None]) -> None:
        self._counters = counters
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._write_errors: Counter[int] = Counter()
        self.devices: frozenset[int] = frozenset()
        """Devices that have failed stop."""

    def report(self, device_index: int, error: DeviceError, *, is_gone: bool = False) -> None:
        """Hears of a failed transfer or flush; final if the error is sticky or the device gone."""
        self._counters.add("device_errors")
        LOGGER.error("%s", error)
        if not (error.sticky or is_gone):
            return
        with self._lock:
            is_news = device_index not in self.devices
            self.devices |= {device_index}
        if is_news:
            LOGGER.critical("%s has failed stop; its chunks are misses", error)
            self._on_lost()

    def write_failed(self, device_index: int, error: DeviceError) -> None:
        """A device that fails one write after the other must not be given the next chunks."""
        if isinstance(error, NotBegunError):
            self.report(device_index, error)
            return
        with self._lock:
            self._write_errors[device_index] += 1
            is_gone = self._write_errors[device_index] >= WRITE_ERRORS_MAX
        self.report(device_index, error, is_gone=is_gone)

    def write_succeeded(self, device_index: int) -> None:
        """Hears of a write that went well: those that failed before it count no more."""
        with self._lock:
            self._write_errors[device_index] = 0
