from collections.abc import Callable

import pytest

from kvstored.io.device import Device, DeviceFacts
from kvstored.io.faulty import FaultPlan, FaultyDevice
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.throttled import ThrottledDevice
from tests.kvstored.io.buffers import PAGE_BYTES


class CallRecorder(MemoryDevice):
    def __init__(self) -> None:
        super().__init__("recorder", PAGE_BYTES, alignment_bytes=512)
        self.calls: list[str] = []

    def flush(self) -> None:
        self.calls.append("flush")

    def close(self) -> None:
        self.calls.append("close")


@pytest.mark.parametrize(
    "wrap",
    [
        MonitoredDevice,
        lambda inner: FaultyDevice(inner, FaultPlan()),
        lambda inner: ThrottledDevice(inner, read_bytes_per_s=1e9, write_bytes_per_s=1e9),
    ],
    ids=["monitored", "faulty", "throttled"],
)
def test_a_wrapper_passes_everything_on(wrap: Callable[[Device], Device]) -> None:
    inner = CallRecorder()
    device = wrap(inner)
    assert device.facts == DeviceFacts("recorder", PAGE_BYTES, 512)
    device.flush()
    device.close()
    assert inner.calls == ["flush", "close"]
