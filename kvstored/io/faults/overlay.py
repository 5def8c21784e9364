"""Damage that lies over a device and leaves what is below as it should be."""

from collections.abc import Sequence
from threading import Lock

from kvstored.io.device import Device
from kvstored.io.memory import AlignedMemory
from kvstored.io.passing import PassingDevice

SECTOR_BYTES = 512
"""What a drive writes whole or not at all, at least."""


class Overlay:
    """Sectors that read as other bytes than those below. Thread-safe.

    Offsets and lengths are multiples of ``SECTOR_BYTES``.
    """

    def __init__(self) -> None:
        self._sectors: dict[int, bytes] = {}
        self._lock = Lock()

    def cover(self, offset: int, data: bytes) -> None:
        """Lays ``data`` over the bytes from ``offset`` on."""
        with self._lock:
            for start in range(0, len(data), SECTOR_BYTES):
                self._sectors[offset + start] = data[start : start + SECTOR_BYTES]

    def uncover(self, offset: int, byte_count: int) -> None:
        """Shows again what is below."""
        with self._lock:
            for start in range(offset, offset + byte_count, SECTOR_BYTES):
                self._sectors.pop(start, None)

    def apply(self, buffer: memoryview, offset: int) -> None:
        """Puts the covered bytes into what was read from ``offset`` on."""
        with self._lock:
            if not self._sectors:
                return
            for start in range(0, buffer.nbytes, SECTOR_BYTES):
                sector = self._sectors.get(offset + start)
                if sector is not None:
                    buffer[start : start + SECTOR_BYTES] = sector


class DamagedDevice(PassingDevice):
    """Shows the inner device through an overlay. A write heals what it covers.

    Thread-safe where concurrent transfers do not overlap.
    """

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.overlay = Overlay()

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads and applies the overlay; raises DeviceError."""
        self.inner.readv(buffers, offset)
        for buffer in buffers:
            self.overlay.apply(buffer.cast("B"), offset)
            offset += buffer.nbytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes; raises DeviceError."""
        self.inner.writev(buffers, offset)
        self.overlay.uncover(offset, sum(buffer.nbytes for buffer in buffers))


def read_bytes(device: Device, offset: int, byte_count: int) -> bytes:
    """What a device gives from ``offset`` on, whole pages; raises DeviceError."""
    if byte_count == 0:
        return b""
    memory = AlignedMemory(byte_count)
    try:
        device.readv([memory.view], offset)
        return bytes(memory.view)
    finally:
        memory.close()
