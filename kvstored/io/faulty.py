"""A wrapper that makes a device fail as a plan says, for tests of what must survive it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock

from kvstored.io.device import Device, DeviceError


class DeviceCall(Enum):
    """The calls of a device that can fail."""

    READ = "read"
    WRITE = "write"
    FLUSH = "flush"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """The ``nth`` call of its kind (from 1) fails; if ``sticky``, so does every later call."""

    call: DeviceCall
    nth: int
    sticky: bool = False


@dataclass(frozen=True, slots=True)
class BitFlip:
    """Bit ``bit`` (0 to 7) of the byte at ``offset`` is wrong in whatever is read."""

    offset: int
    bit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Everything that goes wrong with one device. The default is a healthy device."""

    faults: tuple[CallFault, ...] = ()
    flips: tuple[BitFlip, ...] = ()


class FaultyDevice:
    """Implements ``Device`` around ``inner`` and adds the faults of ``plan``.

    A call that fails does not reach ``inner``. Bit flips lie over what is read; the
    inner device keeps the right bytes. Thread-safe as ``inner``.
    """

    def __init__(self, inner: Device, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan
        self._lock = Lock()
        self._counts = dict.fromkeys(DeviceCall, 0)
        self._stopped = False

    @property
    def name(self) -> str:
        """Name of the inner device."""
        return self._inner.name

    @property
    def capacity_bytes(self) -> int:
        """Capacity of the inner device."""
        return self._inner.capacity_bytes

    @property
    def alignment_bytes(self) -> int:
        """Alignment of the inner device."""
        return self._inner.alignment_bytes

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads, then flips the planned bits; raises DeviceError."""
        self._fail_as_planned(DeviceCall.READ)
        self._inner.readv(buffers, offset)
        for buffer in buffers:
            _flip(self._plan.flips, buffer, offset)
            offset += buffer.nbytes

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes; raises DeviceError."""
        self._fail_as_planned(DeviceCall.WRITE)
        self._inner.writev(buffers, offset)

    def flush(self) -> None:
        """Flushes; raises DeviceError."""
        self._fail_as_planned(DeviceCall.FLUSH)
        self._inner.flush()

    def kernel_file(self) -> None:
        """None: faults lie in the methods of this wrapper."""

    def close(self) -> None:
        """Closes the inner device; this never fails."""
        self._inner.close()

    def _fail_as_planned(self, call: DeviceCall) -> None:
        with self._lock:
            self._counts[call] += 1
            fault = next(
                (
                    fault
                    for fault in self._plan.faults
                    if fault.call is call and fault.nth == self._counts[call]
                ),
                None,
            )
            if fault is not None and fault.sticky:
                self._stopped = True
            stopped = self._stopped
        if stopped or fault is not None:
            raise DeviceError(self.name, call.value, "planned fault", sticky=stopped)


def _flip(flips: Sequence[BitFlip], buffer: memoryview, offset: int) -> None:
    data = buffer.cast("B")
    for flip in flips:
        if offset <= flip.offset < offset + buffer.nbytes:
            data[flip.offset - offset] ^= 1 << flip.bit
