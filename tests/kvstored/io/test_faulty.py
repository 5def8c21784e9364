from collections.abc import Callable

import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.faults.cache import VolatileCache
from kvstored.io.faults.calls import FailingCalls, Fuse
from kvstored.io.faults.overlay import read_bytes
from kvstored.io.faults.reads import FlippedBits, StaleReads
from kvstored.io.faults.writes import LostWrites, MisdirectedWrites, NextWrites, TornWrites
from kvstored.io.faulty import CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.passing import PassingDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance

CALLS: dict[DeviceCall, Callable[[Device], None]] = {
    DeviceCall.READ: lambda device: device.readv([aligned(PAGE_BYTES)], 0),
    DeviceCall.WRITE: lambda device: device.writev([aligned(PAGE_BYTES, seed=1)], 0),
    DeviceCall.FLUSH: lambda device: device.flush(),
}


def memory() -> MemoryDevice:
    return MemoryDevice("memory", CAPACITY_BYTES)


def faulty(*faults: CallFault) -> FaultyDevice:
    return FaultyDevice(memory(), FaultPlan(faults=faults))


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


class TestIdleWrappers(DeviceConformance):
    """A wrapper that is idle is a device like any other."""

    @pytest.fixture(
        params=[
            PassingDevice,
            lambda inner: FailingCalls(inner, Fuse(1000)),
            lambda inner: TornWrites(inner, NextWrites(), lands=lambda _: False),
            lambda inner: LostWrites(inner, NextWrites()),
            lambda inner: MisdirectedWrites(inner, NextWrites(), shift_bytes=PAGE_BYTES),
            StaleReads,
            FlippedBits,
            VolatileCache,
        ],
        ids=["passing", "calls", "torn", "lost", "misdirected", "stale", "flipped", "cache"],
    )
    def device(self, request: pytest.FixtureRequest) -> Device:
        return request.param(memory())


def test_fuse_fails_one_call_of_all_devices() -> None:
    fuse = Fuse(3)
    first, second = FailingCalls(memory(), fuse), FailingCalls(memory(), fuse)
    CALLS[DeviceCall.READ](first)
    CALLS[DeviceCall.WRITE](second)
    assert not fuse.is_met
    with pytest.raises(DeviceError) as caught:
        CALLS[DeviceCall.READ](second)
    assert fuse.is_met
    assert not caught.value.sticky
    CALLS[DeviceCall.READ](second)


def test_device_that_has_gone_gives_plain_errors_until_a_flush() -> None:
    device = FailingCalls(memory(), Fuse(1, for_ever=True))
    for call, is_sticky in [(DeviceCall.WRITE, False), (DeviceCall.READ, False)]:
        with pytest.raises(DeviceError) as caught:
            CALLS[call](device)
        assert caught.value.sticky is is_sticky
    for call in (DeviceCall.FLUSH, *DeviceCall):
        with pytest.raises(DeviceError) as caught:
            CALLS[call](device)
        assert caught.value.sticky


def write(device: Device, page: int, seed: int, page_count: int = 1) -> bytes:
    data = aligned(page_count * PAGE_BYTES, seed=seed)
    device.writev([data], page * PAGE_BYTES)
    return bytes(data)


def shown(device: Device, page: int, page_count: int = 1) -> bytes:
    return read_bytes(device, page * PAGE_BYTES, page_count * PAGE_BYTES)


def test_torn_write_leaves_old_bytes_where_it_did_not_land() -> None:
    inner = memory()
    device = TornWrites(inner, NextWrites(1, bytes_min=2 * PAGE_BYTES), lands=lambda n: n == 1)
    old = write(device, 2, seed=1)
    new = write(device, 2, seed=2, page_count=2)
    assert shown(device, 2, 2) == old + new[PAGE_BYTES:]
    assert shown(inner, 2, 2) == new
    newest = write(device, 2, seed=3)
    assert shown(device, 2) == newest


def test_torn_write_can_tear_a_page() -> None:
    device = TornWrites(memory(), NextWrites(1), lands=lambda n: n != 3, unit_bytes=512)
    new = write(device, 0, seed=2)
    assert shown(device, 0) == new[:1536] + bytes(512) + new[2048:]


def test_lost_write_changes_nothing() -> None:
    choice = NextWrites(1)
    device = LostWrites(memory(), choice)
    write(device, 1, seed=1)
    assert not any(shown(device, 1))
    assert choice.chosen == [(PAGE_BYTES, PAGE_BYTES)]
    assert write(device, 1, seed=1) == shown(device, 1)


def test_misdirected_write_lies_elsewhere() -> None:
    device = MisdirectedWrites(memory(), NextWrites(1), shift_bytes=2 * PAGE_BYTES)
    new = write(device, 0, seed=1, page_count=2)
    assert shown(device, 0, 4) == bytes(2 * PAGE_BYTES) + new
    newer = write(device, 2, seed=2)
    assert shown(device, 2, 2) == newer + new[PAGE_BYTES:]


def test_misdirected_write_ends_at_the_end_of_the_device() -> None:
    inner = memory()
    last = inner.facts.capacity_bytes // PAGE_BYTES - 1
    device = MisdirectedWrites(inner, NextWrites(1), shift_bytes=PAGE_BYTES)
    new = write(device, last - 1, seed=1, page_count=2)
    assert shown(device, last) == new[:PAGE_BYTES]


def test_stale_read_gives_what_was_replaced() -> None:
    device = StaleReads(memory())
    old = write(device, 1, seed=1)
    new = write(device, 0, seed=2, page_count=2)
    device.recall(PAGE_BYTES, PAGE_BYTES)
    assert shown(device, 0, 2) == new[:PAGE_BYTES] + old
    device.recall(0, 2 * PAGE_BYTES)
    assert shown(device, 0) == bytes(PAGE_BYTES)


def test_flipped_bits_lie_over_what_is_read() -> None:
    inner = memory()
    device = FlippedBits(inner)
    for offset, bit in [(PAGE_BYTES - 1, 0), (PAGE_BYTES, 7), (5 * PAGE_BYTES, 0)]:
        device.flip(offset, bit)
    first, second = aligned(PAGE_BYTES), aligned(PAGE_BYTES)
    device.readv([first, second], 0)
    assert (first[-1], second[0], sum(first) + sum(second)) == (1, 0x80, 0x81)
    assert not inner.media.any()
    assert write(device, 0, seed=1) == shown(device, 0)
    device.heal()
    assert not any(shown(device, 1))


def test_volatile_cache_keeps_writes_until_a_flush() -> None:
    inner = memory()
    device = VolatileCache(inner)
    first, second = write(device, 0, seed=1), write(device, 1, seed=2)
    assert shown(device, 0, 2) == first + second
    assert not inner.media.any()
    device.flush()
    assert shown(inner, 0, 2) == shown(device, 0, 2) == first + second


def test_volatile_cache_loses_pages_with_the_power() -> None:
    inner = memory()
    device = VolatileCache(inner)
    data = write(device, 0, seed=1, page_count=3)
    survives = iter([True, False, True])
    device.lose_power(lambda: next(survives))
    wanted = data[:PAGE_BYTES] + bytes(PAGE_BYTES) + data[2 * PAGE_BYTES :]
    assert shown(device, 0, 3) == shown(inner, 0, 3) == wanted


def test_wrappers_stack() -> None:
    inner = memory()
    device = FlippedBits(LostWrites(inner, NextWrites(1)))
    new = write(device, 0, seed=1)
    device.flip(0, 0)
    assert shown(device, 0) == b"\1" + bytes(PAGE_BYTES - 1)
    assert shown(inner, 0) == new
