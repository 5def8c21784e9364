"""What every implementation of ``Device`` must do. Subclasses give the fixture ``device``."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from kvstored.io.device import Device, DeviceError
from tests.kvstored.io.buffers import PAGE_BYTES, aligned

CAPACITY_BYTES = 64 * PAGE_BYTES


class DeviceConformance:
    def test_tells_its_size_and_alignment(self, device: Device) -> None:
        assert device.facts.capacity_bytes == CAPACITY_BYTES
        assert PAGE_BYTES % device.facts.alignment_bytes == 0
        assert device.facts.name

    def test_reads_what_was_written(self, device: Device) -> None:
        written = aligned(3 * PAGE_BYTES, seed=1)
        device.writev([written], 5 * PAGE_BYTES)
        device.flush()
        read = aligned(3 * PAGE_BYTES)
        device.readv([read], 5 * PAGE_BYTES)
        assert read == written

    def test_scatters_and_gathers_in_order(self, device: Device) -> None:
        whole = aligned(6 * PAGE_BYTES, seed=2)
        device.writev([whole[: 2 * PAGE_BYTES], whole[2 * PAGE_BYTES :]], 0)
        parts = [aligned(PAGE_BYTES), aligned(4 * PAGE_BYTES), aligned(PAGE_BYTES)]
        device.readv(parts, 0)
        assert b"".join(parts) == whole

    def test_a_write_leaves_its_neighbours_alone(self, device: Device) -> None:
        before = aligned(3 * PAGE_BYTES, seed=3)
        device.writev([before], 0)
        middle = aligned(PAGE_BYTES, seed=4)
        device.writev([middle], PAGE_BYTES)
        after = aligned(3 * PAGE_BYTES)
        device.readv([after], 0)
        expected = bytes(before[:PAGE_BYTES]) + bytes(middle) + bytes(before[2 * PAGE_BYTES :])
        assert after == expected

    def test_reaches_the_last_page(self, device: Device) -> None:
        written = aligned(PAGE_BYTES, seed=5)
        device.writev([written], CAPACITY_BYTES - PAGE_BYTES)
        read = aligned(PAGE_BYTES)
        device.readv([read], CAPACITY_BYTES - PAGE_BYTES)
        assert read == written

    def test_takes_no_buffers(self, device: Device) -> None:
        device.readv([], 0)
        device.writev([], 0)

    @pytest.mark.parametrize("operation", ["readv", "writev"])
    @pytest.mark.parametrize(
        "offset", [-PAGE_BYTES, CAPACITY_BYTES - PAGE_BYTES, CAPACITY_BYTES, 100 * CAPACITY_BYTES]
    )
    def test_refuses_what_lies_outside(self, device: Device, operation: str, offset: int) -> None:
        with pytest.raises(DeviceError, match="lie outside") as caught:
            getattr(device, operation)([aligned(2 * PAGE_BYTES)], offset)
        assert not caught.value.sticky
        assert device.facts.capacity_bytes == CAPACITY_BYTES

    @pytest.mark.parametrize("operation", ["readv", "writev"])
    @pytest.mark.parametrize(("offset", "byte_count"), [(8, PAGE_BYTES), (0, PAGE_BYTES - 8)])
    def test_refuses_what_is_unaligned(
        self, device: Device, operation: str, offset: int, byte_count: int
    ) -> None:
        with pytest.raises(DeviceError, match="multiple of"):
            getattr(device, operation)([aligned(PAGE_BYTES)[:byte_count]], offset)

    def test_serves_threads_at_the_same_time(self, device: Device) -> None:
        def transfer(page: int) -> bool:
            written = aligned(PAGE_BYTES, seed=page)
            read = aligned(PAGE_BYTES)
            for _ in range(4):
                device.writev([written], page * PAGE_BYTES)
                device.flush()
                device.readv([read], page * PAGE_BYTES)
            return read == written

        with ThreadPoolExecutor(8) as threads:
            assert all(threads.map(transfer, range(16)))
