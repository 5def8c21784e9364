"""A wrapper that makes a device fail as a plan says, for tests of what must survive it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock

from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Everything that goes wrong with one device. The default is a healthy device."""

    faults: tuple[CallFault, ...] = ()


class FaultyDevice(PassingDevice):
    """Adds the faults of ``plan`` to ``inner``. Thread-safe as ``inner``.

    A call that fails does not reach ``inner``. Wrappers that damage what is on media are
    in ``io/faults``.
    """

    def __init__(self, inner: Device, plan: FaultPlan) -> None:
        super().__init__(inner)
        self._plan = plan
        self._lock = Lock()
        self._counts = dict.fromkeys(DeviceCall, 0)
        self._stopped = False

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Reads; raises DeviceError."""
        self._fail_as_planned(DeviceCall.READ)
        super().readv(buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes; raises DeviceError."""
        self._fail_as_planned(DeviceCall.WRITE)
        super().writev(buffers, offset)

    def flush(self) -> None:
        """Flushes; raises DeviceError."""
        self._fail_as_planned(DeviceCall.FLUSH)
        super().flush()

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
            raise DeviceError(self.facts.name, call.value, "planned fault", sticky=stopped)
