"""The configured rate of devices."""

import pytest
from pydantic import ByteSize

from kvstored.config import IoSection
from kvstored.daemon import run_bytes_min, throttled
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.throttled import ThrottledDevice


def test_devices_are_limited_only_when_a_rate_is_configured() -> None:
    device = MemoryDevice("memory", 4096)
    assert throttled(device, IoSection()) is device
    limited = throttled(device, IoSection(device_bytes_per_s_max=ByteSize(1000)))
    assert isinstance(limited, ThrottledDevice)
    assert limited.facts.name == "memory"


@pytest.mark.parametrize(
    ("limit", "run_bytes"),
    [(None, 512 * 1024), (5_000_000_000, 512 * 1024), (200_000_000, 200_000)],
)
def test_the_first_layer_of_a_slow_device_came_with_all_others(
    limit: int | None, run_bytes: int
) -> None:
    """*Bug:* merged into runs of the same length, sixteen layers of a small model came at once."""
    section = IoSection(device_bytes_per_s_max=None if limit is None else ByteSize(limit))
    assert run_bytes_min(section) == run_bytes
    small = IoSection(read_bytes_max=ByteSize(64 * 1024))
    assert run_bytes_min(small) == 64 * 1024
