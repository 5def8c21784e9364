"""A wrapper that counts what passes through a device."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from kvstored.io.device import Device, DeviceError, KernelFile
from kvstored.io.passing import PassingDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCounters:
    """Totals since the device was wrapped. Bytes are those of transfers that succeeded."""

    read_bytes: int = 0
    written_bytes: int = 0
    read_requests: int = 0
    write_requests: int = 0
    flush_requests: int = 0
    errors: int = 0
    failed: bool = False
    """A sticky error was seen: the device has failed stop."""


class MonitoredDevice(PassingDevice):
    """Counts every call of ``inner``; the counters stay readable after ``close``."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._lock = Lock()
        self._read_bytes = 0
        self._written_bytes = 0
        self._read_requests = 0
        self._write_requests = 0
        self._flush_requests = 0
        self._errors = 0
        self._failed = False

    def counters(self) -> DeviceCounters:
        """All counters at one moment."""
        with self._lock:
            return DeviceCounters(
                read_bytes=self._read_bytes,
                written_bytes=self._written_bytes,
                read_requests=self._read_requests,
                write_requests=self._write_requests,
                flush_requests=self._flush_requests,
                errors=self._errors,
                failed=self._failed,
            )

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads and counts; raises DeviceError."""
        try:
            self.inner.readv(buffers, offset)
        except DeviceError as error:
            self._count("read", 0, error)
            raise
        self._count("read", sum(buffer.nbytes for buffer in buffers), None)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes and counts; raises DeviceError."""
        try:
            self.inner.writev(buffers, offset)
        except DeviceError as error:
            self._count("write", 0, error)
            raise
        self._count("write", sum(buffer.nbytes for buffer in buffers), None)

    def flush(self) -> None:
        """Flushes and counts; raises DeviceError."""
        try:
            self.inner.flush()
        except DeviceError as error:
            self._count_error(error)
            raise
        finally:
            with self._lock:
                self._flush_requests += 1

    def kernel_file(self) -> KernelFile | None:
        """The file of the inner device, with every transfer counted."""
        file = self.inner.kernel_file()
        if file is None:
            return None

        def settled(operation: str, byte_count: int, error: DeviceError | None) -> None:
            self._count(operation, byte_count if error is None else 0, error)
            file.settled(operation, byte_count, error)

        return KernelFile(file.descriptor, admit=file.admit, settled=settled)

    def _count(self, operation: str, byte_count: int, error: DeviceError | None) -> None:
        with self._lock:
            if operation == "read":
                self._read_requests += 1
                self._read_bytes += byte_count
            else:
                self._write_requests += 1
                self._written_bytes += byte_count
        if error is not None:
            self._count_error(error)

    def _count_error(self, error: DeviceError) -> None:
        with self._lock:
            self._errors += 1
            self._failed = self._failed or error.sticky
