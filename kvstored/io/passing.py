"""The base of every device that wraps another one."""

from collections.abc import Sequence

from kvstored.io.device import Device, DeviceFacts, KernelFile


class PassingDevice:
    """Implements ``Device`` and passes everything on; subclasses change single methods.

    Thread-safe as ``inner``.
    """

    def __init__(self, inner: Device) -> None:
        self.inner = inner

    @property
    def facts(self) -> DeviceFacts:
        """Those of the inner device."""
        return self.inner.facts

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads; raises DeviceError."""
        self.inner.readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes; raises DeviceError."""
        self.inner.writev(buffers, offset)

    def flush(self) -> None:
        """Flushes; raises DeviceError."""
        self.inner.flush()

    def kernel_file(self) -> KernelFile | None:
        """None: what a wrapper does lies in its methods, and the kernel would pass them by."""
        return None

    def close(self) -> None:
        """Closes the inner device."""
        self.inner.close()
