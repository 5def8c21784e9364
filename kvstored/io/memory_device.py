"""A device in memory: the double that tests and benchmarks use in place of a file."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvstored.io.device import DeviceError, DeviceFacts
from kvstored.io.transfer import check_transfer

ALIGNMENT_BYTES = 4096


class MemoryDevice:
    """Implements ``Device`` over zeroed memory, as strict about alignment as O_DIRECT.

    ``media`` has shape [capacity_bytes] and dtype uint8; a test may look at it and
    damage it. Every write is on media at once. Thread-safe where concurrent
    transfers do not overlap.
    """

    def __init__(
        self, name: str, capacity_bytes: int, *, alignment_bytes: int = ALIGNMENT_BYTES
    ) -> None:
        self._facts = DeviceFacts(name, capacity_bytes, alignment_bytes)
        self.media: NDArray[np.uint8] = np.zeros(capacity_bytes, dtype=np.uint8)

    @property
    def facts(self) -> DeviceFacts:
        """What was given at construction."""
        return self._facts

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Fills ``buffers`` from ``offset`` on; raises DeviceError."""
        for array in self._checked("read", buffers, offset):
            np.copyto(array, self.media[offset : offset + array.nbytes])
            offset += array.nbytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Stores ``buffers`` at ``offset``; raises DeviceError."""
        for array in self._checked("write", buffers, offset):
            np.copyto(self.media[offset : offset + array.nbytes], array)
            offset += array.nbytes

    def flush(self) -> None:
        """Memory has nothing to flush."""

    def kernel_file(self) -> None:
        """None: there is no file."""

    def close(self) -> None:
        """Keeps the memory: a test may reopen what was stored by wrapping ``media`` again."""

    def _checked(
        self, operation: str, buffers: Sequence[memoryview], offset: int
    ) -> list[NDArray[np.uint8]]:
        check_transfer(self, operation, buffers, offset)
        arrays = [np.frombuffer(buffer, dtype=np.uint8) for buffer in buffers if buffer.nbytes]
        if any(array.ctypes.data % self._facts.alignment_bytes for array in arrays):
            cause = f"a buffer does not start at a multiple of {self._facts.alignment_bytes} bytes"
            raise DeviceError(self._facts.name, operation, cause)
        return arrays
