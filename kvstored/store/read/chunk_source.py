"""Where a chunk is read from: its extent on a device, or a frame of the DRAM tier.

And where its slices lie in there, as the index has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader
from kvstored.format.geometry import ChunkGeometry, LengthBounds
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import Index
from kvstored_contract.layout import StateLayout


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


def stored_geometries(
    index: Index, entries: Sequence[tuple[ChunkId, ChunkRecord]], layout: StateLayout
) -> list[ChunkGeometry | None]:
    """Geometry of each of these chunks of a layout.

    None where the layout has a codec and the index does not know the lengths of the slices,
    or such as no chunk of the layout has: the chunk can never be read. Raises IndexFailure.
    """
    if not layout.is_encoded:
        return [ChunkGeometry.of(layout, record.token_count) for _, record in entries]
    bounds = LengthBounds.of(layout)
    return [
        None
        if lengths is None or bounds.problem(lengths) is not None
        else ChunkGeometry.of_slices(lengths)
        for lengths in index.lengths(entries)
    ]
