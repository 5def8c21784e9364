"""Which transfers a device accepts: whole aligned buffers inside its capacity."""

from collections.abc import Sequence

from kvstored.io.device import Device, DeviceError


def check_transfer(
    device: Device, operation: str, buffers: Sequence[memoryview], offset: int
) -> int:
    """Bytes of the transfer; raises DeviceError where it is unaligned or out of range.

    A file would grow when it is written behind its end, so no device leaves this
    check to the layer below it.
    """
    byte_count = sum(buffer.nbytes for buffer in buffers)
    alignment = device.alignment_bytes
    if offset % alignment or any(buffer.nbytes % alignment for buffer in buffers):
        cause = f"offset {offset} or a buffer's length is no multiple of {alignment} bytes"
        raise DeviceError(device.name, operation, cause)
    if offset < 0 or offset + byte_count > device.capacity_bytes:
        cause = f"bytes {offset} to {offset + byte_count} lie outside of {device.capacity_bytes}"
        raise DeviceError(device.name, operation, cause)
    return byte_count
