import pytest
from pydantic import ByteSize

from benchmarks.cake.fluctuation import Fluctuation
from benchmarks.cake.measured.fluctuating_daemon import FluctuatingClock, device_rate, fluctuating
from kvstored.config import IoSection
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.throttled import RateLimit
from tests.kvstored.io.test_throttled import VirtualClock


def test_a_throttle_in_this_time_follows_the_drawn_rate() -> None:
    real = VirtualClock()
    share = Fluctuation(1, most=1.0, interval_s=0.1)
    limit = RateLimit(1000.0, FluctuatingClock(share, real))
    started_s = real.now_s
    for _ in range(20):
        limit.wait_until(limit.reserve(150))
    elapsed_s = real.now_s - started_s
    given_bytes = 1000.0 * share.sum_between(started_s, real.now_s)
    assert given_bytes == pytest.approx(3000.0, rel=1e-4)
    assert elapsed_s > 3.0


def test_devices_are_wrapped_at_the_rate_that_others_can_look_up() -> None:
    device = MemoryDevice("memory", 4096)
    limited = fluctuating(device, IoSection(device_bytes_per_s_max=ByteSize(1000)))
    assert limited.facts.name == "memory"
    assert limited is not device
    assert 0 <= device_rate(1000.0).value(5.0) <= 1000


def test_a_daemon_without_a_rate_is_refused() -> None:
    with pytest.raises(ValueError, match=r"io\.device_bytes_per_s_max is the highest rate"):
        fluctuating(MemoryDevice("memory", 4096), IoSection())
