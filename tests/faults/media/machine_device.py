"""The devices of the state machine."""

import threading
from collections.abc import Sequence

from kvstored.io.device import Device
from kvstored.io.faults.cache import VolatileCache
from kvstored.io.faults.calls import FailingCalls
from tests.faults.media.served import EXTENT_BYTES
from tests.faults.media.stack import FaultStack
from tests.support.waiting import PATIENCE_S


class MachineDevice(FailingCalls):
    """Damaged media, over them a volatile cache, over it failing calls and a gate for chunks."""

    def __init__(self, inner: Device) -> None:
        self.media = FaultStack(inner)
        self.cache = VolatileCache(self.media)
        self.gate = threading.Event()
        self.gate.set()
        self.still = threading.RLock()
        super().__init__(self.cache)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(buffer.nbytes for buffer in buffers) >= EXTENT_BYTES:
            self.gate.wait(PATIENCE_S)
        with self.still:
            super().writev(buffers, offset)

    def flush(self) -> None:
        with self.still:
            super().flush()
