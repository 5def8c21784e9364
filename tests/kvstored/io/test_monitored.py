from concurrent.futures import ThreadPoolExecutor

import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.faulty import CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import DeviceCounters, MonitoredDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance


def memory() -> MemoryDevice:
    return MemoryDevice("memory", CAPACITY_BYTES)


class TestMonitoredDevice(DeviceConformance):
    @pytest.fixture
    def device(self) -> Device:
        return MonitoredDevice(memory())


def test_counts_every_call_and_byte() -> None:
    device = MonitoredDevice(memory())
    assert device.counters() == DeviceCounters()
    page, pages = aligned(PAGE_BYTES), aligned(2 * PAGE_BYTES)
    device.writev([page, pages], 0)
    device.readv([page], 0)
    device.readv([pages], 0)
    device.flush()
    assert device.counters() == DeviceCounters(
        read_bytes=3 * PAGE_BYTES,
        written_bytes=3 * PAGE_BYTES,
        read_requests=2,
        write_requests=1,
        flush_requests=1,
    )


def test_counts_errors_without_their_bytes() -> None:
    faults = tuple(CallFault(call=call, nth=1) for call in DeviceCall)
    device = MonitoredDevice(FaultyDevice(memory(), FaultPlan(faults=faults)))
    with pytest.raises(DeviceError):
        device.readv([aligned(PAGE_BYTES)], 0)
    with pytest.raises(DeviceError):
        device.writev([aligned(PAGE_BYTES)], 0)
    with pytest.raises(DeviceError):
        device.flush()
    assert device.counters() == DeviceCounters(
        read_requests=1, write_requests=1, flush_requests=1, errors=3
    )


def test_tells_of_a_device_that_failed_stop() -> None:
    fault = CallFault(call=DeviceCall.FLUSH, nth=1, sticky=True)
    device = MonitoredDevice(FaultyDevice(memory(), FaultPlan(faults=(fault,))))
    with pytest.raises(DeviceError):
        device.flush()
    assert device.counters().failed


def test_counts_calls_of_all_threads() -> None:
    device = MonitoredDevice(memory())
    with ThreadPoolExecutor(8) as threads:
        for page in range(CAPACITY_BYTES // PAGE_BYTES):
            threads.submit(device.readv, [aligned(PAGE_BYTES)], page * PAGE_BYTES)
    assert device.counters().read_bytes == CAPACITY_BYTES


def test_counters_outlive_the_device() -> None:
    device = MonitoredDevice(memory())
    device.flush()
    device.close()
    assert device.counters().flush_requests == 1
