"""Whole extents read into memory that no client can write, and verified there."""

from concurrent.futures import Future

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import HEADER_BYTES
from kvstored.io.device import DeviceError
from kvstored.io.engine import Background, IoEngine, IoRequest, Operation
from kvstored.io.split import submit_split
from kvstored.store.read.chunk_source import StoredChunk, is_header_of


def load_extent(
    engine: IoEngine,
    source: StoredChunk,
    memory: memoryview,
    *,
    background: Background | None,
) -> Future[DeviceError | None]:
    """Begins to read a chunk's extent to the start of ``memory``; returns at once.

    The future resolves to the error if any, on a thread of the engine; until then ``memory`` is
    the engine's. It always resolves: the kernel ends every transfer of a drive with an error at
    its time-out for that drive, and other work of the device cannot keep this back for ever
    (``io/schedule.py``). So who waits for a client gives up at the client's deadline, and who
    waits for nobody may wait for the drive. ``background`` says which kind of work it is; None,
    that a client waits for it.
    """
    landed: Future[DeviceError | None] = Future()
    extent = source.record.extent
    submit_split(
        engine,
        IoRequest(
            device_index=extent.device_index,
            operation=Operation.READ,
            buffers=(memory[: source.geometry.extent_bytes],),
            offset=extent.offset,
            done=landed.set_result,
            background=background,
        ),
    )
    return landed


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
