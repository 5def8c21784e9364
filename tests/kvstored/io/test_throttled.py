import pytest

from kvstored.io.device import Device
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.throttled import LATENESS_S_MAX, RateLimit, ThrottledDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance


class VirtualClock:
    """Time that passes only while somebody sleeps, and then ``late_s`` too long."""

    def __init__(self, late_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.late_s = late_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float, /) -> None:
        self.now_s += seconds + self.late_s


def throttled(clock: VirtualClock) -> ThrottledDevice:
    return ThrottledDevice(
        MemoryDevice("memory", CAPACITY_BYTES),
        read_bytes_per_s=10 * PAGE_BYTES,
        write_bytes_per_s=2 * PAGE_BYTES,
        clock=clock,
    )


class TestThrottledDevice(DeviceConformance):
    @pytest.fixture
    def device(self) -> Device:
        return throttled(VirtualClock())


def test_reads_and_writes_have_rates_of_their_own() -> None:
    clock = VirtualClock()
    device = throttled(clock)
    device.readv([aligned(PAGE_BYTES), aligned(PAGE_BYTES)], 0)
    assert clock.now_s == pytest.approx(100.2)
    device.writev([aligned(PAGE_BYTES)], 0)
    assert clock.now_s == pytest.approx(100.7)


def test_flushes_take_no_time() -> None:
    clock = VirtualClock()
    throttled(clock).flush()
    assert clock.now_s == 100.0


@pytest.mark.parametrize("late_s", [0.0, 0.001, 0.04])
def test_the_long_run_rate_is_exact_although_sleeps_are_late(late_s: float) -> None:
    clock = VirtualClock(late_s)
    device = throttled(clock)
    for _ in range(1000):
        device.readv([aligned(PAGE_BYTES)], 0)
    assert clock.now_s - 100.0 == pytest.approx(100.0, abs=2 * LATENESS_S_MAX)


def test_idle_time_is_not_saved_up() -> None:
    clock = VirtualClock()
    limit = RateLimit(100.0, clock)
    clock.now_s += 1000.0
    assert limit.reserve(100) == pytest.approx(clock.now_s + 1.0)


def test_no_more_is_made_up_for_than_the_last_sleep_was_late() -> None:
    clock = VirtualClock(late_s=0.01)
    limit = RateLimit(100.0, clock)
    limit.wait_until(limit.reserve(100))
    clock.now_s += 1000.0
    assert limit.reserve(100) == pytest.approx(clock.now_s + 1.0 - 0.01)


def test_a_sleep_that_was_very_late_is_not_made_up_for() -> None:
    clock = VirtualClock(late_s=30.0)
    limit = RateLimit(100.0, clock)
    limit.wait_until(limit.reserve(100))
    assert limit.reserve(100) == pytest.approx(clock.now_s + 1.0 - LATENESS_S_MAX)


def test_a_device_slower_than_its_limit_makes_up_for_nothing() -> None:
    clock = VirtualClock()
    limit = RateLimit(100.0, clock)
    end_s = limit.reserve(100)
    clock.now_s += 5.0
    limit.wait_until(end_s)
    assert limit.reserve(100) == pytest.approx(clock.now_s + 1.0)


def test_transfers_of_all_threads_follow_each_other() -> None:
    limit = RateLimit(100.0, VirtualClock())
    assert [limit.reserve(50) for _ in range(4)] == pytest.approx([100.5, 101.0, 101.5, 102.0])


class HastyClock(VirtualClock):
    """Wakes its first sleeper a quarter of a second early."""

    def sleep(self, seconds: float, /) -> None:
        super().sleep(seconds if self.now_s > 100.0 else seconds - 0.25)


def test_sleeps_again_when_woken_early() -> None:
    clock = HastyClock()
    RateLimit(1.0, clock).wait_until(101.0)
    assert clock.now_s == pytest.approx(101.0)


@pytest.mark.parametrize("bytes_per_s", [0.0, -1.0])
def test_refuses_a_rate_that_never_ends(bytes_per_s: float) -> None:
    with pytest.raises(ValueError, match="above 0 bytes/s"):
        RateLimit(bytes_per_s, VirtualClock())
