"""Which transfers a device accepts, and how many system calls take them."""

from collections.abc import Iterator, Sequence

from kvstored.io.device import Device, DeviceError

IOV_MAX = 1024
"""Most buffers that Linux takes in one call."""
_CALL_BYTES_MAX = 1024 * 1024 * 1024
"""Most bytes handed to one call; Linux moves at most 2 GiB less a page."""


def check_transfer(
    device: Device, operation: str, buffers: Sequence[memoryview], offset: int
) -> int:
    """Bytes of the transfer; raises DeviceError where it is unaligned or out of range.

    A file would grow when it is written past its end, so no device leaves this
    check to the layer below it.
    """
    byte_count = sum(buffer.nbytes for buffer in buffers)
    alignment = device.facts.alignment_bytes
    if offset % alignment or any(buffer.nbytes % alignment for buffer in buffers):
        cause = f"offset {offset} or a buffer's length is no multiple of {alignment} bytes"
        raise DeviceError(device.facts.name, operation, cause)
    if offset < 0 or offset + byte_count > device.facts.capacity_bytes:
        cause = (
            f"bytes {offset} to {offset + byte_count} lie outside of {device.facts.capacity_bytes}"
        )
        raise DeviceError(device.facts.name, operation, cause)
    return byte_count


def batches(buffers: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """Whole buffers in order, in groups that one system call takes."""
    batch: list[memoryview] = []
    batch_bytes = 0
    for buffer in buffers:
        full = len(batch) == IOV_MAX or batch_bytes + buffer.nbytes > _CALL_BYTES_MAX
        if batch and full:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(buffer)
        batch_bytes += buffer.nbytes
    if batch:
        yield batch
