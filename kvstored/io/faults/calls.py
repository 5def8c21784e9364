"""Calls that fail: the N-th of all devices together, or all of one device."""

from collections.abc import Sequence
from threading import Lock

from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice


class Fuse:
    """Counts the calls of several devices; the ``nth`` (from 1) fails. Thread-safe.

    If ``for_ever``, the device of that call has gone: each of its later calls fails too.
    """

    def __init__(self, nth: int, *, for_ever: bool = False) -> None:
        self.for_ever = for_ever
        self.call_count = 0
        self._nth = nth
        self._lock = Lock()

    @property
    def is_met(self) -> bool:
        """Whether there were so many calls that one has failed."""
        return self.call_count >= self._nth

    def burns(self) -> bool:
        """Counts one call; whether it is the one to fail."""
        with self._lock:
            self.call_count += 1
            return self.call_count == self._nth


class FailingCalls(PassingDevice):
    """Fails as ``fuse`` and ``broken`` say; a call that fails does not reach the inner device.

    ``broken`` names operations that fail while they are in it: "read", "write", "flush".
    As a file device does, this one fails stop after a flush that failed: then, and only
    then, are its errors sticky. A device that has gone gives plain errors.
    """

    def __init__(self, inner: Device, fuse: Fuse | None = None) -> None:
        super().__init__(inner)
        self.fuse = fuse
        self.broken: set[str] = set()
        self.has_failed_stop = False

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads; raises DeviceError."""
        self._check("read")
        super().readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes; raises DeviceError."""
        self._check("write")
        super().writev(buffers, offset)

    def flush(self) -> None:
        """Flushes; raises DeviceError."""
        self._check("flush")
        super().flush()

    def _check(self, operation: str) -> None:
        if self.fuse is not None and self.fuse.burns():
            if self.fuse.for_ever:
                self.broken |= {"read", "write", "flush"}
            self._fail(operation)
        if self.has_failed_stop or operation in self.broken:
            self._fail(operation)

    def _fail(self, operation: str) -> None:
        self.has_failed_stop = self.has_failed_stop or operation == "flush"
        raise DeviceError(self.facts.name, operation, "planned fault", sticky=self.has_failed_stop)
