"""What a rebuild has found and not stored yet. Pure."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import SliceLengths, part_count
from kvstored.store.index.change import IndexChange
from kvstored.store.space.scanned_slab import ScannedSlab


@dataclass(slots=True)
class RebuildBatch:
    """The newest record of each chunk, and the lengths of its slices if it is encoded.

    ``entry_count`` are the entries that all of it makes in the index.
    """

    records: dict[ChunkId, ChunkRecord] = field(default_factory=dict)
    entry_count: int = 0
    _lengths: "dict[ChunkId, array[int]]" = field(default_factory=dict)
    """Four bytes for each; in a tuple each takes nine times that."""

    def add(self, found: ScannedSlab) -> None:
        """Adds what a slab holds; of two extents of one chunk the newer stays."""
        for chunk, record in found.chunks:
            old = self.records.get(chunk)
            if old is None or is_newer(record, old):
                self.entry_count += (old is None) - self.parts_count(chunk)
                self.records[chunk] = record
                self._lengths.pop(chunk, None)
        for chunk, one in found.lengths:
            if self.records[chunk].header_checksum == one.header_checksum:
                self._lengths[chunk] = array("I", one.lengths)
                self.entry_count += self.parts_count(chunk)

    def parts_count(self, chunk: ChunkId) -> int:
        """Entries for the lengths of the chunk's slices."""
        return part_count(len(self._lengths.get(chunk, ())))

    def change(self, chunks: Sequence[ChunkId]) -> IndexChange:
        """Stores some of the chunks."""
        return IndexChange(
            puts=tuple((chunk, self.records[chunk]) for chunk in chunks),
            lengths=tuple(
                (chunk, SliceLengths(lengths=tuple(lengths), header_checksum=header_checksum))
                for chunk in chunks
                if (lengths := self._lengths.get(chunk)) is not None
                for header_checksum in (self.records[chunk].header_checksum,)
            ),
        )

    def clear(self) -> None:
        """Forgets everything."""
        self.records.clear()
        self._lengths.clear()
        self.entry_count = 0


def is_newer(record: ChunkRecord, other: ChunkRecord) -> bool:
    """Which of two extents of one key was written later.

    Stamps grow within an epoch; those of writes that a crash kept from being committed are
    given out again in the next.
    """
    return written_at(record) > written_at(other)


def written_at(record: ChunkRecord) -> tuple[int, int]:
    """When it was written: larger is later."""
    return record.epoch, record.stamp
