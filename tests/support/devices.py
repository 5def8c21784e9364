"""Devices that wait or fail when a test wants them to."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice
from tests.support.waiting import PATIENCE_S

WrapperT = TypeVar("WrapperT", bound=PassingDevice)


class Wrapping(list[WrapperT]):
    """Wraps each device that it is called with, and lists the wrappers in that order."""

    def __init__(self, wrapper: Callable[[Device], WrapperT]) -> None:
        super().__init__()
        self._wrapper = wrapper

    def __call__(self, inner: Device) -> WrapperT:
        self.append(self._wrapper(inner))
        return self[-1]


class GatedDevice(PassingDevice):
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


class FailingDevice(PassingDevice):
    """Fails the operations that are named in ``broken``."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.broken: set[str] = set()

    def _check(self, operation: str) -> None:
        if operation in self.broken:
            raise DeviceError(self.facts.name, operation, "broken", sticky=operation == "flush")

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


class BadPlacesDevice(PassingDevice):
    """Cannot read what lies at the offsets in ``bad``, for ever where ``sticky``."""

    def __init__(self, inner: Device, bad: Iterable[int] = ()) -> None:
        super().__init__(inner)
        self.bad = set(bad)
        self.sticky = False

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        end = offset + sum(map(len, buffers))
        if any(offset <= place < end for place in self.bad):
            raise DeviceError(self.facts.name, "read", "Input/output error", sticky=self.sticky)
        super().readv(buffers, offset)


class HeaderRefusingDevice(FailingDevice):
    """Fails single pages only: slab headers."""

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) == HEADER_BYTES:
            self._check("header")
        super().writev(buffers, offset)


class OnceWrongDevice(PassingDevice):
    """While ``is_wrong`` the first read of every place is wrong, but for those in ``seen``."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.seen: set[tuple[int, int]] = set()
        """Offset and length of what was read."""
        self.is_wrong = False

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        super().readv(buffers, offset)
        place = offset, sum(map(len, buffers))
        if self.is_wrong and place not in self.seen:
            self.seen.add(place)
            buffers[0][7] ^= 1


class WrongThenHeldDevice(OnceWrongDevice):
    """While ``is_wrong`` the second read of a place waits for ``gate``, and says so.

    Each read waits for ``before``, if there is such an event.
    """

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.is_held = threading.Event()
        self.before: threading.Event | None = None

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        if self.before is not None:
            self.before.wait(PATIENCE_S)
        if self.is_wrong and (offset, sum(map(len, buffers))) in self.seen:
            self.is_held.set()
            self.gate.wait(PATIENCE_S)
        super().readv(buffers, offset)
