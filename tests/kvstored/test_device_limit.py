"""The configured rate of devices."""

from pydantic import ByteSize

from kvstored.config import IoSection
from kvstored.daemon import throttled
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.throttled import ThrottledDevice


def test_devices_are_limited_only_when_a_rate_is_configured() -> None:
    device = MemoryDevice("memory", 4096)
    assert throttled(device, IoSection()) is device
    limited = throttled(device, IoSection(device_bytes_per_s_max=ByteSize(1000)))
    assert isinstance(limited, ThrottledDevice)
    assert limited.facts.name == "memory"
