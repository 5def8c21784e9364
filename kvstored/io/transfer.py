"""Which transfers a device accepts, and in how many requests and system calls it takes them.

Long ones become several requests, so that others get their turn in between.
"""

from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoEngine, IoRequest
from kvstored_contract.limits import ALIGNMENT_BYTES

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


REQUEST_BYTES_MAX = 2 * 1024 * 1024
"""The longest request: as long as a client's read, and large enough for the full rate."""


def submit_split(engine: IoEngine, request: IoRequest) -> None:
    """Runs a request of one buffer as several at once; returns without waiting.

    ``done`` is called once, when the last of them has ended, with the first error that any
    of them had. They may run in any order and side by side.
    """
    (buffer,) = request.buffers
    ranges = split_ranges(buffer.nbytes)
    countdown = _Countdown(len(ranges), request.done)
    for start, end in ranges:
        engine.submit(
            IoRequest(
                device_index=request.device_index,
                operation=request.operation,
                buffers=(buffer[start:end],),
                offset=request.offset + start,
                done=countdown.ended,
                background=request.background,
                is_awaited=request.is_awaited,
            )
        )


def split_ranges(byte_count: int) -> list[tuple[int, int]]:
    """First byte and end of each request: aligned, and of nearly the same length."""
    request_count = max(1, -(-byte_count // REQUEST_BYTES_MAX))
    page_count = -(-byte_count // ALIGNMENT_BYTES)
    ends = [
        min(byte_count, page_count * number // request_count * ALIGNMENT_BYTES)
        for number in range(1, request_count + 1)
    ]
    return list(zip([0, *ends[:-1]], ends, strict=True))


class _Countdown:
    """Calls ``done`` when so many requests have ended. Thread-safe."""

    def __init__(self, request_count: int, done: Callable[[DeviceError | None], None]) -> None:
        self._lock = Lock()
        self._remaining = request_count
        self._error: DeviceError | None = None
        self._done = done

    def ended(self, error: DeviceError | None) -> None:
        """Takes the end of one request."""
        with self._lock:
            self._error = self._error or error
            self._remaining -= 1
            is_last = not self._remaining
        if is_last:
            self._done(self._error)
