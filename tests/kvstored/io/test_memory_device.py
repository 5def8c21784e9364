import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.memory_device import MemoryDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned, unaligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance


class TestMemoryDevice(DeviceConformance):
    @pytest.fixture
    def device(self) -> Device:
        return MemoryDevice("memory", CAPACITY_BYTES)


@pytest.mark.parametrize("operation", ["readv", "writev"])
def test_refuses_unaligned_memory(operation: str) -> None:
    device = MemoryDevice("memory", CAPACITY_BYTES)
    with pytest.raises(DeviceError, match="does not start at a multiple of 4096"):
        getattr(device, operation)([unaligned(PAGE_BYTES)], 0)


def test_alignment_can_be_chosen() -> None:
    device = MemoryDevice("memory", CAPACITY_BYTES, alignment_bytes=512)
    device.writev([aligned(512, seed=1)], 512)
    assert device.media[512:1024].any()


def test_media_are_in_view_and_survive_close() -> None:
    device = MemoryDevice("memory", CAPACITY_BYTES)
    written = aligned(PAGE_BYTES, seed=1)
    device.writev([written], PAGE_BYTES)
    device.close()
    assert device.media[PAGE_BYTES : 2 * PAGE_BYTES].tobytes() == written
