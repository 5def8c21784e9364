"""Lengths of slices in the index: they come and go with the record of their chunk."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.slice_lengths import SliceLengths, part_count, part_key
from kvstored.store.index.entry import Table
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.read.chunk_source import stored_geometries
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.store.index_stores import MAP_BYTES, chunk_id, extent_at, record_at
from tests.support.raw_index import raw_write

LAYERS = 70
"""Their lengths take three entries."""
PARTS = 3
LENGTHS = tuple(range(1, LAYERS + 1))
LAYOUT = StateLayout(
    model="m",
    dtype="f",
    layers=(LayerState(StateKind.KV, 16),) * LAYERS,
    chunk_tokens=16,
    codec="zstd",
)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    yield opened
    opened.close()


def record(number: int, stamp: int = 1) -> ChunkRecord:
    return record_at(extent_at(number), stamp=stamp)


def change(number: int, stamp: int = 1, lengths: tuple[int, ...] = LENGTHS) -> IndexChange:
    """A put of an encoded chunk."""
    one = record(number, stamp)
    known = SliceLengths(lengths=lengths, header_checksum=one.header_checksum)
    return IndexChange(puts=((chunk_id(number), one),), lengths=((chunk_id(number), known),))


def lengths(index: Index, number: int, stamp: int = 1) -> tuple[int, ...] | None:
    return index.lengths([(chunk_id(number), record(number, stamp))])[0]


def test_lengths_are_there_after_reopening(tmp_path: Path, index: Index) -> None:
    index.apply(IndexChange.merged([change(1), change(2, lengths=(5,))]))
    index.close()
    for readonly in (False, True):
        again = Index.open(tmp_path / "index", map_bytes=MAP_BYTES, readonly=readonly)
        assert (lengths(again, 1), lengths(again, 2), lengths(again, 3)) == (LENGTHS, (5,), None)
        assert list(again.walks.damaged_entries()) == []
        again.close()


def test_lengths_of_another_record_do_not_count(index: Index) -> None:
    index.apply(change(1, stamp=1))
    assert lengths(index, 1, stamp=2) is None
    index.apply(change(1, stamp=2, lengths=LENGTHS[::-1]))
    assert lengths(index, 1, stamp=2) == LENGTHS[::-1]
    assert lengths(index, 1, stamp=1) is None
    assert index._decoding.damaged_count == 0


@pytest.mark.parametrize(
    "removal",
    [
        IndexChange(deletes=(chunk_id(1),)),
        IndexChange(quarantines=((chunk_id(1), record(1)),)),
    ],
    ids=["deleted", "quarantined"],
)
def test_lengths_go_with_their_record(index: Index, removal: IndexChange) -> None:
    index.apply(IndexChange.merged([change(1), change(2)]))
    assert index.usage.entry_count(Table.LENGTHS) == 2 * PARTS
    index.apply(removal)
    assert lengths(index, 1) is None
    assert lengths(index, 2) == LENGTHS
    assert index.usage.entry_count(Table.LENGTHS) == PARTS


def test_a_chunk_that_was_stored_anew_keeps_its_lengths_in_quarantine(index: Index) -> None:
    index.apply(change(1, stamp=2))
    index.apply(IndexChange(quarantines=((chunk_id(1), record(1, stamp=1)),)))
    assert lengths(index, 1, stamp=2) == LENGTHS


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_a_group_leaves_what_its_last_change_does(index: Index, is_deleted_first: bool) -> None:
    deletion = IndexChange(deletes=(chunk_id(1),))
    group = [deletion, change(1)] if is_deleted_first else [change(1), deletion]
    index.apply(IndexChange.merged(group))
    assert lengths(index, 1) == (LENGTHS if is_deleted_first else None)
    assert index.usage.entry_count(Table.LENGTHS) == (PARTS if is_deleted_first else 0)


@pytest.mark.parametrize("is_one_group", [True, False])
@pytest.mark.parametrize("lengths_anew", [(5,), LENGTHS[:33], ()], ids=["one", "two", "raw"])
def test_parts_of_a_longer_chunk_stayed_when_a_shorter_one_took_its_key(
    index: Index, lengths_anew: tuple[int, ...], is_one_group: bool
) -> None:
    """The chunk that was acknowledged last would have been unreadable."""
    anew = change(1, stamp=2, lengths=lengths_anew)
    if not lengths_anew:
        anew = replace(anew, lengths=())
    for group in [[change(1), anew]] if is_one_group else [[change(1)], [anew]]:
        index.apply(IndexChange.merged(group))
    assert lengths(index, 1, stamp=2) == (lengths_anew or None)
    assert index.usage.entry_count(Table.LENGTHS) == part_count(len(lengths_anew))
    assert index._decoding.damaged_count == 0


def test_a_rebuild_begins_without_lengths(index: Index) -> None:
    index.apply(change(1))
    index.clear_chunks()
    assert index.usage.entry_count(Table.LENGTHS) == 0
    assert lengths(index, 1) is None


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_lengths_are_absent_counted_and_named(index: Index, part: int) -> None:
    index.apply(change(1))
    key = part_key(chunk_id(1), part)
    with raw_write(index, Table.LENGTHS) as transaction:
        value = bytearray(transaction.get(key) or b"")
        value[20] ^= 1
        transaction.put(key, bytes(value))
    assert lengths(index, 1) is None
    assert index._decoding.damaged_count == 1
    assert [(table, found) for table, found, _ in index.walks.damaged_entries()] == [
        (Table.LENGTHS, key)
    ]


def test_an_index_of_a_version_without_codecs_is_read_as_it_is(tmp_path: Path) -> None:
    """The check and the walk before a start open it without writing."""
    index = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    index.apply(IndexChange(puts=((chunk_id(1), record(1)),)))
    with index._tables.environment.begin(write=True) as transaction:
        transaction.drop(index._tables.handles[Table.LENGTHS])
    index.close()
    older = Index.open(tmp_path / "index", map_bytes=MAP_BYTES, readonly=True)
    assert older.get(chunk_id(1)) == record(1)
    assert lengths(older, 1) is None
    assert older.usage.entry_count(Table.LENGTHS) == 0
    assert list(older.walks.damaged_entries()) == []
    older.close()
    newer = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    newer.apply(change(2))
    assert (newer.get(chunk_id(1)), lengths(newer, 2)) == (record(1), LENGTHS)
    newer.close()


def test_any_other_table_that_is_missing_is_damage(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    with index._tables.environment.begin(write=True) as transaction:
        transaction.drop(index._tables.handles[Table.LAYOUTS])
    index.close()
    with pytest.raises(Exception, match="cannot open the index"):
        Index.open(tmp_path / "index", map_bytes=MAP_BYTES, readonly=True)


def test_lengths_take_room_from_chunks_and_not_from_sequences(index: Index) -> None:
    left_chunks, left_bytes = index.usage.left_chunks, index.usage.left_others_bytes
    index.apply(IndexChange.merged([change(number) for number in range(100)]))
    assert left_chunks - index.usage.left_chunks > 100 + 100 * PARTS
    assert index.usage.left_others_bytes == left_bytes


def test_geometries_of_an_encoded_layout_come_from_the_index(index: Index) -> None:
    too_long = (LAYOUT.slice_bytes(0) + 1, *LENGTHS[1:])
    index.apply(
        IndexChange.merged([change(1), change(2, lengths=too_long), change(3, lengths=(1, 2))])
    )
    entries = [(chunk_id(number), record(number)) for number in range(1, 5)]
    first, *others = stored_geometries(index, entries, LAYOUT)
    assert first is not None
    assert first.slice_bytes == LENGTHS
    assert others == [None, None, None]


def test_a_raw_layout_asks_the_index_nothing(index: Index) -> None:
    raw = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 16),))
    index.close()
    (geometry,) = stored_geometries(index, [(chunk_id(1), record(1))], raw)
    assert geometry is not None
    assert geometry.slice_bytes == (16 * 16,)


def test_lmdb_s_own_errors_are_failures_of_the_index(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise lmdb.CorruptedError("planned")

    monkeypatch.setattr("kvstored.store.index.index.chunk_parts", fail)
    with pytest.raises(Exception, match="cannot read the index"):
        lengths(index, 1)
