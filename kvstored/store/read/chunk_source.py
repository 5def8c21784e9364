"""Where a chunk is read from: its extent on a device, or a frame of the DRAM tier."""

from dataclasses import dataclass

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A chunk to be read from its extent; ``device_id`` is that of its device."""

    chunk: ChunkId
    record: ChunkRecord
    device_id: bytes
    geometry: ChunkGeometry


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedChunk:
    """A chunk to be copied from a frame of the DRAM tier: the bytes of its extent."""

    chunk: ChunkId
    frame: memoryview
    geometry: ChunkGeometry


ChunkSource = StoredChunk | FramedChunk


def is_header_of(header: ExtentHeader, page: bytes, source: StoredChunk) -> bool:
    """Whether a sound header is the very one that the index recorded for this chunk."""
    return (
        int.from_bytes(page[-8:], "little") == source.record.header_checksum
        and header.chunk == source.chunk
        and header.device_id == source.device_id
        and header.offset == source.record.extent.offset
        and header.slice_bytes == source.geometry.slice_bytes
    )
