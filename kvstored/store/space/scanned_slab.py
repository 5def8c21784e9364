"""What the headers of a slab say of its chunks. Pure."""

from dataclasses import dataclass

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import SliceLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedSlab:
    """What a slab holds; ``unread_count`` headers of extents could not be read.

    ``lengths`` are those of the slices of the encoded ones among the chunks.
    """

    chunks: tuple[tuple[ChunkId, ChunkRecord], ...] = ()
    lengths: tuple[tuple[ChunkId, SliceLengths], ...] = ()
    unread_count: int = 0
