"""The protocol of a device: a fixed stretch of storage that is addressed by byte offset."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

READS_MAX = 2
"""So many reads must find bytes damaged before they count as that: a transfer may go wrong once."""


class DeviceError(OSError):
    """A device could not read, write or flush. Short transfers are errors too.

    ``sticky`` tells that the device has failed stop and every later call fails.
    """

    def __init__(self, device: str, operation: str, cause: str, *, sticky: bool = False) -> None:
        super().__init__(f"{device}: {operation} failed: {cause}")
        self.sticky = sticky

    def without_frames(self) -> Self:
        """Returns the error without its frames, which would keep a request's buffers alive."""
        self.__context__ = self.__cause__ = None
        return self.with_traceback(None)


class NotBegunError(DeviceError):
    """A transfer that could not begin, for want of memory say: it tells nothing of the device."""


@dataclass(frozen=True, slots=True)
class KernelFile:
    """A device as a file whose transfers the kernel may run on its own.

    ``admit`` returns the bytes of a transfer, or raises what ``readv`` or ``writev`` of
    the device would raise before it. ``settled`` must hear of every transfer once: of
    its operation ("read" or "write"), its bytes, and its error or None.
    """

    descriptor: int
    admit: Callable[[str, Sequence[memoryview], int], int]
    settled: Callable[[str, int, DeviceError | None], None]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What never changes of a device."""

    name: str
    """What a person calls it: its path."""
    capacity_bytes: int
    """Size, fixed when the device was formatted."""
    alignment_bytes: int
    """Alignment of offsets, lengths and memory, as the device asks for it."""


class Device(Protocol):
    """A fixed stretch of storage. Every method may be called from any thread.

    Buffers, their lengths and offsets are multiples of ``facts.alignment_bytes``.
    """

    @property
    def facts(self) -> DeviceFacts:
        """Its name, size and alignment."""

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Fills all ``buffers`` with the bytes from ``offset`` on, or raises DeviceError."""

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes all ``buffers`` to ``offset``, or raises DeviceError. Not yet on media."""

    def flush(self) -> None:
        """Brings every completed write to media, or raises DeviceError: then never retry."""

    def kernel_file(self) -> KernelFile | None:
        """The file behind the device; None where all must go through these methods."""

    def close(self) -> None:
        """Releases the device; no other method may be called afterwards."""
