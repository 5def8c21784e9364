"""A drive's volatile write cache: what is not flushed need not survive."""

from collections.abc import Callable, Sequence
from threading import Lock

from kvstored.io.device import Device
from kvstored.io.faults.overlay import Overlay
from kvstored.io.memory import AlignedMemory
from kvstored.io.passing import PassingDevice
from kvstored.io.transfer import check_transfer

PAGE_BYTES = 4096


class VolatileCache(PassingDevice):
    """Keeps every write to itself until a flush hands it down. Thread-safe as ``inner``.

    So the inner device has exactly what a loss of power cannot take away.
    """

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._pending: list[tuple[int, bytes]] = []
        self._shown = Overlay()
        self._lock = Lock()

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads what was written, flushed or not; raises DeviceError."""
        with self._lock:
            self.inner.readv(buffers, offset)
            for buffer in buffers:
                self._shown.apply(buffer.cast("B"), offset)
                offset += buffer.nbytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Takes the bytes; raises DeviceError for a transfer that the device would refuse."""
        check_transfer(self, "write", buffers, offset)
        data = b"".join(buffers)
        with self._lock:
            self._pending.append((offset, data))
            self._shown.cover(offset, data)

    def flush(self) -> None:
        """Hands every write down, in their order; raises DeviceError."""
        with self._lock:
            for offset, data in self._pending:
                self._hand_down(offset, data)
                self._shown.uncover(offset, len(data))
            self._pending.clear()
            self.inner.flush()

    def lose_power(self, survives: Callable[[], bool]) -> None:
        """Hands down those pages of unflushed writes that survive; the others are gone."""
        with self._lock:
            for offset, data in self._pending:
                for start in range(0, len(data), PAGE_BYTES):
                    if survives():
                        self._hand_down(offset + start, data[start : start + PAGE_BYTES])
                self._shown.uncover(offset, len(data))
            self._pending.clear()

    def _hand_down(self, offset: int, data: bytes) -> None:
        memory = AlignedMemory(len(data))
        try:
            memory.view[:] = data
            self.inner.writev([memory.view], offset)
        finally:
            memory.close()
