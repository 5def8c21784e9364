"""Devices that wait or fail when a test wants them to."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import Device, DeviceError
from tests.support.waiting import PATIENCE_S

WrapperT = TypeVar("WrapperT", bound="WrappedDevice")


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

    def kernel_file(self) -> None:
        return None

    def close(self) -> None:
        self.inner.close()


class Wrapping(list[WrapperT]):
    """Wraps each device that it is called with, and lists the wrappers in that order."""

    def __init__(self, wrapper: Callable[[Device], WrapperT]) -> None:
        super().__init__()
        self._wrapper = wrapper

    def __call__(self, inner: Device) -> WrapperT:
        self.append(self._wrapper(inner))
        return self[-1]


class GatedDevice(WrappedDevice):
    """Chunk transfers wait until the gate is open; the start of each is announced."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.started = threading.Semaphore(0)

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.started.release()
        self.gate.wait(PATIENCE_S)
        super().readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) > HEADER_BYTES:
            self.gate.wait(PATIENCE_S)
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


class BadPlacesDevice(WrappedDevice):
    """Cannot read what lies at the offsets in ``bad``."""

    def __init__(self, inner: Device, bad: Iterable[int]) -> None:
        super().__init__(inner)
        self.bad = tuple(bad)

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        end = offset + sum(map(len, buffers))
        if any(offset <= place < end for place in self.bad):
            raise DeviceError(self.name, "read", "Input/output error")
        super().readv(buffers, offset)


class HeaderRefusingDevice(FailingDevice):
    """Fails single pages only: slab headers."""

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) == HEADER_BYTES:
            self._check("header")
        super().writev(buffers, offset)
