from collections.abc import Callable

import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.faulty import BitFlip, CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.memory_device import MemoryDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance

CALLS: dict[DeviceCall, Callable[[Device], None]] = {
    DeviceCall.READ: lambda device: device.readv([aligned(PAGE_BYTES)], 0),
    DeviceCall.WRITE: lambda device: device.writev([aligned(PAGE_BYTES, seed=1)], 0),
    DeviceCall.FLUSH: lambda device: device.flush(),
}


def faulty(*faults: CallFault) -> FaultyDevice:
    return FaultyDevice(MemoryDevice("memory", CAPACITY_BYTES), FaultPlan(faults=faults))


class TestFaultyDeviceWithoutFaults(DeviceConformance):
    @pytest.fixture
    def device(self) -> Device:
        return faulty()


@pytest.mark.parametrize("call", DeviceCall)
def test_the_nth_call_fails_once(call: DeviceCall) -> None:
    device = faulty(CallFault(call=call, nth=2))
    CALLS[call](device)
    with pytest.raises(DeviceError, match=f"{call.value} failed: planned fault") as caught:
        CALLS[call](device)
    assert not caught.value.sticky
    CALLS[call](device)


def test_calls_are_counted_by_kind() -> None:
    device = faulty(CallFault(call=DeviceCall.FLUSH, nth=1))
    CALLS[DeviceCall.READ](device)
    CALLS[DeviceCall.WRITE](device)
    with pytest.raises(DeviceError):
        CALLS[DeviceCall.FLUSH](device)


def test_after_a_sticky_fault_every_call_fails() -> None:
    device = faulty(CallFault(call=DeviceCall.FLUSH, nth=1, sticky=True))
    for call in (DeviceCall.FLUSH, *DeviceCall):
        with pytest.raises(DeviceError) as caught:
            CALLS[call](device)
        assert caught.value.sticky


def test_a_write_that_fails_changes_nothing() -> None:
    inner = MemoryDevice("memory", CAPACITY_BYTES)
    fault = CallFault(call=DeviceCall.WRITE, nth=1)
    device = FaultyDevice(inner, FaultPlan(faults=(fault,)))
    with pytest.raises(DeviceError):
        CALLS[DeviceCall.WRITE](device)
    assert not inner.media.any()


def test_flipped_bits_lie_over_what_is_read() -> None:
    inner = MemoryDevice("memory", CAPACITY_BYTES)
    flips = (BitFlip(PAGE_BYTES - 1, 0), BitFlip(PAGE_BYTES, 7), BitFlip(5 * PAGE_BYTES, 0))
    device = FaultyDevice(inner, FaultPlan(flips=flips))
    first, second = aligned(PAGE_BYTES), aligned(PAGE_BYTES)
    device.readv([first, second], 0)
    assert first[-1] == 1
    assert second[0] == 0x80
    assert sum(first) + sum(second) == 0x81
    assert not inner.media.any()
