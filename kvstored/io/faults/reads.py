"""Reads that end well and give other bytes than were written last."""

from collections.abc import Sequence
from threading import Lock

from kvstored.io.device import Device
from kvstored.io.faults.overlay import DamagedDevice, Overlay, read_bytes
from kvstored.io.passing import PassingDevice


class StaleReads(DamagedDevice):
    """Gives back, where a test says so, the bytes that the last write replaced."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._replaced = Overlay()

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes, and remembers what was there before; raises DeviceError."""
        byte_count = sum(buffer.nbytes for buffer in buffers)
        self._replaced.cover(offset, read_bytes(self, offset, byte_count))
        super().writev(buffers, offset)

    def recall(self, offset: int, byte_count: int) -> None:
        """From now on these whole pages read as they were before their last write."""
        replaced = bytearray(read_bytes(self, offset, byte_count))
        self._replaced.apply(memoryview(replaced), offset)
        self.overlay.cover(offset, bytes(replaced))


class FlippedBits(PassingDevice):
    """Bits that read wrong until something is written over them."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self._masks: dict[int, int] = {}
        self._lock = Lock()

    def flip(self, offset: int, bit: int) -> None:
        """Bit ``bit`` (0 to 7) of the byte at ``offset`` is wrong; once more, and it is right."""
        with self._lock:
            self._masks[offset] = self._masks.get(offset, 0) ^ 1 << bit

    def heal(self) -> None:
        """All bits are right again."""
        with self._lock:
            self._masks.clear()

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads, then flips; raises DeviceError."""
        self.inner.readv(buffers, offset)
        with self._lock:
            for buffer in buffers:
                data = buffer.cast("B")
                for position, mask in self._masks.items():
                    if offset <= position < offset + buffer.nbytes:
                        data[position - offset] ^= mask
                offset += buffer.nbytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes, which makes bits right; raises DeviceError."""
        self.inner.writev(buffers, offset)
        end = offset + sum(buffer.nbytes for buffer in buffers)
        with self._lock:
            for position in [place for place in self._masks if offset <= place < end]:
                del self._masks[position]
