"""Whole extents read into memory that no client can write, and verified there."""

import threading

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.split import submit_in_parts
from kvstored.store.read_stream import StoredChunk, is_header_of


def load_extent(engine: IoEngine, source: StoredChunk, memory: memoryview) -> DeviceError | None:
    """Reads a chunk's extent to the start of ``memory``; waits; returns the error if any.

    No client waits for it, so that it goes behind everything that one waits for.
    """
    landed = threading.Event()
    errors: list[DeviceError] = []

    def done(error: DeviceError | None) -> None:
        if error is not None:
            errors.append(error)
        landed.set()

    extent = source.record.extent
    submit_in_parts(
        engine,
        IoRequest(
            device_index=extent.device_index,
            operation=Operation.READ,
            buffers=(memory[: source.geometry.extent_bytes],),
            offset=extent.offset,
            done=done,
            is_background=True,
        ),
    )
    landed.wait()
    return errors[0] if errors else None


def is_intact(source: StoredChunk, memory: memoryview) -> bool:
    """Whether ``memory`` holds the chunk that the index vouches for, every slice verified."""
    page = bytes(memory[:HEADER_BYTES])
    try:
        header = ExtentHeader.decode(page)
    except FormatError:
        return False
    if not is_header_of(header, page, source):
        return False
    geometry = source.geometry
    return all(
        checksum(memory[start : start + size]) == part.checksum
        for start, size, part in zip(
            geometry.slice_offsets, geometry.slice_bytes, header.slices, strict=False
        )
        if size
    )
