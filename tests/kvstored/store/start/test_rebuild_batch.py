"""What a rebuild gathers: the newest of each chunk, and no lengths of any other."""

from kvstored.format.slice_lengths import SliceLengths
from kvstored.store.index.change import IndexChange
from kvstored.store.space.scanned_slab import ScannedSlab
from kvstored.store.start.rebuild_batch import RebuildBatch
from tests.kvstored.store.index_stores import chunk_id, extent_at, record_at

LENGTHS = tuple(range(1, 71))
PARTS = 3


def slab(number: int, *, stamp: int, lengths: tuple[int, ...] = LENGTHS) -> ScannedSlab:
    """A slab with one chunk, encoded where there are lengths."""
    record = record_at(extent_at(stamp), stamp=stamp)
    known = SliceLengths(lengths=lengths, header_checksum=record.header_checksum)
    return ScannedSlab(
        chunks=((chunk_id(number), record),),
        lengths=((chunk_id(number), known),) if lengths else (),
    )


def change(*slabs: ScannedSlab) -> IndexChange:
    return IndexChange(
        puts=tuple(entry for one in slabs for entry in one.chunks),
        lengths=tuple(entry for one in slabs for entry in one.lengths),
    )


def batch_of(*slabs: ScannedSlab) -> RebuildBatch:
    batch = RebuildBatch()
    for one in slabs:
        batch.add(one)
    return batch


def test_a_batch_stores_what_was_found() -> None:
    slabs = [slab(1, stamp=1), slab(2, stamp=2, lengths=()), slab(3, stamp=3, lengths=(5,))]
    batch = batch_of(*slabs)
    chunks = [chunk_id(number) for number in (1, 2, 3)]
    assert batch.change(chunks) == change(*slabs)
    assert batch.change(chunks[1:2]) == change(slabs[1])
    assert [batch.parts_count(chunk) for chunk in chunks] == [PARTS, 0, 1]


def test_lengths_of_a_record_that_lost_were_kept() -> None:
    older, newer = slab(1, stamp=1), slab(1, stamp=2, lengths=(5,))
    raw = slab(1, stamp=3, lengths=())
    for slabs in ([older, newer], [newer, older], [older, newer, older]):
        batch = batch_of(*slabs)
        assert batch.change([chunk_id(1)]) == change(newer)
        assert batch.entry_count == 2
    batch = batch_of(older, raw, newer)
    assert batch.change([chunk_id(1)]) == change(raw)
    assert batch.entry_count == 1


def test_a_batch_ended_by_its_chunks_whatever_their_lengths() -> None:
    batch = batch_of(slab(1, stamp=1), slab(2, stamp=2), slab(3, stamp=3, lengths=()))
    assert batch.entry_count == 3 + 2 * PARTS
    batch.clear()
    assert (batch.entry_count, batch.records, batch.parts_count(chunk_id(1))) == (0, {}, 0)
    batch.add(slab(1, stamp=1))
    assert batch.entry_count == 1 + PARTS
