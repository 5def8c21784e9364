"""Devices that wait or fail when a test wants them to."""

import threading
from collections.abc import Sequence

from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import Device, DeviceError


class WrappedDevice:
    """Passes everything on; subclasses change one method."""

    def __init__(self, inner: Device) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capacity_bytes(self) -> int:
        return self.inner.capacity_bytes

    @property
    def alignment_bytes(self) -> int:
        return self.inner.alignment_bytes

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.inner.readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.inner.writev(buffers, offset)

    def flush(self) -> None:
        self.inner.flush()

    def close(self) -> None:
        self.inner.close()


class GatedDevice(WrappedDevice):
    """Chunk transfers wait until the gate is open; the start of each is announced."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.started = threading.Semaphore(0)

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.started.release()
        self.gate.wait(10)
        super().readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) > HEADER_BYTES:
            self.gate.wait(10)
        super().writev(buffers, offset)


class FailingDevice(WrappedDevice):
    """Fails the operations that are named in ``broken``."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.broken: set[str] = set()

    def _check(self, operation: str) -> None:
        if operation in self.broken:
            raise DeviceError(self.name, operation, "broken", sticky=operation == "flush")

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        self._check("read")
        super().readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) > HEADER_BYTES:
            self._check("write")
        super().writev(buffers, offset)

    def flush(self) -> None:
        self._check("flush")
        super().flush()


class HeaderRefusingDevice(FailingDevice):
    """Fails single pages only: slab headers."""

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) == HEADER_BYTES:
            self._check("header")
        super().writev(buffers, offset)
