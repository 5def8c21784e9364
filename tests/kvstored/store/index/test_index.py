import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lmdb
import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.entry import META_KEY, Table, quarantine_key, sequence_key
from kvstored.store.index.index import Index, IndexChange, IndexFailure
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    chunk_id,
    extent_at,
    meta,
    record_at,
)
from tests.support.raw_index import raw_write

LAYOUT = StateLayout(model="m", dtype="float32", layers=(LayerState(StateKind.KV, 64),))
OTHER_NAMESPACE_ID = b"o" * 16


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    yield opened
    opened.close()


def put(index: Index, *numbers: int) -> None:
    index.apply(
        IndexChange(
            puts=tuple((chunk_id(n), record_at(extent_at(n), stamp=n + 1)) for n in numbers)
        )
    )


def overwrite(index: Index, table: Table, key: bytes, *, flip: int = 0) -> None:
    """Flips one bit of a stored value, as a failing medium would."""
    with raw_write(index, table) as transaction:
        value = bytearray(transaction.get(key) or b"")
        value[flip] ^= 1
        transaction.put(key, bytes(value))


def test_new_index_is_empty(index: Index) -> None:
    assert index.get(chunk_id(1)) is None
    assert index.get_many([]) == []
    assert index.meta() is None
    assert index.layout(LAYOUT_ID) is None
    assert index.sequence(NAMESPACE_ID, "none") is None
    assert (index.usage.chunk_count, index.usage.entry_count(Table.SEQUENCES)) == (0, 0)
    assert list(index.walks.records()) == []
    assert list(index.walks.quarantined()) == []
    assert index.walks.sequences(NAMESPACE_ID) == []


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    record, sequence = record_at(extent_at(0)), SequenceRecord(layout_id=LAYOUT_ID)
    first = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    first.apply(
        IndexChange(
            puts=((chunk_id(1), record),),
            layouts=(LAYOUT,),
            sequence_puts=((NAMESPACE_ID, "talk", sequence),),
            meta=meta(),
        )
    )
    first.close()
    second = Index.open(tmp_path / "index", map_bytes=MAP_BYTES, readonly=True)
    assert second.get(chunk_id(1)) == record
    assert second.layout(LAYOUT.layout_id) == LAYOUT
    assert second.sequence(NAMESPACE_ID, "talk") == sequence
    assert second.meta() == meta()
    second.close()


def test_get_many_answers_in_the_order_of_the_question(index: Index) -> None:
    put(index, 1, 3)
    records = index.get_many([chunk_id(3), chunk_id(2), chunk_id(1)])
    assert [record and record.stamp for record in records] == [4, None, 2]


def test_deleted_chunk_is_absent(index: Index) -> None:
    put(index, 1, 2)
    index.apply(IndexChange(deletes=(chunk_id(1), chunk_id(7))))
    assert [chunk for chunk, _ in index.walks.records()] == [chunk_id(2)]


def test_quarantine_moves_the_record_until_it_is_released(index: Index) -> None:
    put(index, 1)
    record = index.get(chunk_id(1))
    assert record is not None
    index.apply(IndexChange(quarantines=((chunk_id(1), record),)))
    assert index.get(chunk_id(1)) is None
    assert list(index.walks.quarantined()) == [(chunk_id(1), record)]
    index.apply(IndexChange(releases=(record.extent,)))
    assert list(index.walks.quarantined()) == []


def test_quarantine_leaves_a_chunk_that_was_stored_anew(index: Index) -> None:
    put(index, 1)
    old = record_at(extent_at(9), stamp=1)
    index.apply(IndexChange(quarantines=((chunk_id(1), old),)))
    assert index.get(chunk_id(1)) == record_at(extent_at(1), stamp=2)
    assert list(index.walks.quarantined()) == [(chunk_id(1), old)]


def test_sequences_are_listed_by_namespace(index: Index) -> None:
    sequence = SequenceRecord(layout_id=LAYOUT_ID)
    index.apply(
        IndexChange(
            sequence_puts=(
                (NAMESPACE_ID, "b", sequence),
                (NAMESPACE_ID, "a", sequence),
                (OTHER_NAMESPACE_ID, "c", sequence),
            )
        )
    )
    assert index.walks.sequences(NAMESPACE_ID) == ["a", "b"]
    assert index.usage.entry_count(Table.SEQUENCES) == 3
    index.apply(IndexChange(sequence_deletes=((NAMESPACE_ID, "a"),)))
    assert index.walks.sequences(NAMESPACE_ID) == ["b"]
    assert index.walks.sequences(OTHER_NAMESPACE_ID) == ["c"]


def test_records_of_all_sequences_without_damaged_ones(index: Index) -> None:
    records = [SequenceRecord(layout_id=LAYOUT_ID, keys=(bytes([n]) * 32,)) for n in range(3)]
    named = zip((NAMESPACE_ID, NAMESPACE_ID, OTHER_NAMESPACE_ID), "abc", records, strict=True)
    index.apply(IndexChange(sequence_puts=tuple(named)))
    assert list(index.walks.sequence_records()) == [
        (NAMESPACE_ID, records[0]),
        (NAMESPACE_ID, records[1]),
        (OTHER_NAMESPACE_ID, records[2]),
    ]


def test_a_name_that_cannot_be_stored_changes_nothing(index: Index) -> None:
    bad = (NAMESPACE_ID, "x" * 201, SequenceRecord(layout_id=LAYOUT_ID))
    with pytest.raises(ValueError, match="1 to 200 bytes"):
        index.apply(IndexChange(sequence_puts=(bad,), meta=meta()))
    assert index.meta() is None
    index.apply(IndexChange(meta=meta()))
    assert index.meta() == meta()


def test_clear_keeps_layouts_and_sequences(index: Index) -> None:
    put(index, 1, 2)
    record = record_at(extent_at(2), stamp=3)
    index.apply(
        IndexChange(
            quarantines=((chunk_id(2), record),),
            layouts=(LAYOUT,),
            sequence_puts=((NAMESPACE_ID, "talk", SequenceRecord(layout_id=LAYOUT_ID)),),
            meta=meta(),
        )
    )
    index.clear_chunks()
    assert (index.usage.chunk_count, list(index.walks.quarantined()), index.meta()) == (0, [], None)
    assert index.layout(LAYOUT.layout_id) == LAYOUT
    assert index.walks.sequences(NAMESPACE_ID) == ["talk"]


@pytest.mark.parametrize("position", [0, 4, 20, 60, 79])
def test_damaged_record_is_absent_and_counted(index: Index, position: int) -> None:
    put(index, 1, 2)
    overwrite(index, Table.CHUNKS, chunk_id(1).encode(), flip=position)
    assert index.get(chunk_id(1)) is None
    assert index._decoding.damaged_count == 1
    assert [chunk for chunk, _ in index.walks.records()] == [chunk_id(2)]
    assert dict(index.walks.entries())[chunk_id(1)] is None
    assert index._decoding.damaged_count == 3


def test_record_under_another_key_is_absent(index: Index) -> None:
    put(index, 1)
    with raw_write(index, Table.CHUNKS) as transaction:
        value = transaction.get(chunk_id(1).encode())
        assert value is not None
        transaction.put(chunk_id(2).encode(), value)
    assert index.get(chunk_id(2)) is None
    assert index._decoding.damaged_count == 1


def test_damage_in_any_table_is_absence_and_is_found_by_the_walk(index: Index) -> None:
    put(index, 1, 2)
    record = record_at(extent_at(2), stamp=3)
    index.apply(
        IndexChange(
            quarantines=((chunk_id(2), record),),
            layouts=(LAYOUT,),
            sequence_puts=((NAMESPACE_ID, "talk", SequenceRecord(layout_id=LAYOUT_ID)),),
            meta=meta(),
        )
    )
    assert list(index.walks.damaged_entries()) == []
    keys = {
        Table.CHUNKS: chunk_id(1).encode(),
        Table.QUARANTINE: quarantine_key(record.extent),
        Table.LAYOUTS: LAYOUT.layout_id,
        Table.SEQUENCES: sequence_key(NAMESPACE_ID, "talk"),
        Table.META: META_KEY,
    }
    for table, key in keys.items():
        overwrite(index, table, key, flip=-1)
    assert {table: key for table, key, _ in index.walks.damaged_entries()} == keys
    assert index._decoding.damaged_count == 0
    assert index.meta() is None
    assert index.layout(LAYOUT.layout_id) is None
    assert index.sequence(NAMESPACE_ID, "talk") is None
    assert index.walks.sequences(NAMESPACE_ID) == []
    assert list(index.walks.quarantined()) == []
    assert index._decoding.damaged_count == 5


def test_every_change_has_a_revision_of_its_own(index: Index) -> None:
    revisions = [index.revision]
    for change in (
        IndexChange(puts=((chunk_id(1), record_at(extent_at(1))),)),
        IndexChange(deletes=(chunk_id(1),)),
        IndexChange(meta=meta()),
    ):
        index.apply(change)
        revisions.append(index.revision)
    index.clear_chunks()
    revisions.append(index.revision)
    assert revisions == sorted(set(revisions))
    path = index.path
    index.close()
    again = Index.open(path, map_bytes=MAP_BYTES)
    # Opening is no change.
    assert again.revision == revisions[-1]
    again.close()


def test_look_ups_are_told_to_the_map(index: Index, monkeypatch) -> None:
    """Else a long run would make the whole index resident."""
    put(index, *range(100))
    told: list[int] = []
    monkeypatch.setattr(index._tables.pages, "touched", told.append)
    index.get_many([chunk_id(n) for n in range(70)])
    assert told == [70]
    put(index, *range(200, 230))
    assert told == [70, 30]
    list(index.walks.records())
    list(index.walks.chunk_batches())
    assert told == [70, 30, 9, 9]


def test_a_full_map_refuses_what_does_not_fit_and_nothing_else(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=256 * 1024)
    put(index, *range(100))
    stored = index.usage.chunk_count
    with pytest.raises(IndexFailure, match="full at 262144 bytes; restart with a larger"):
        put(index, *range(100, 10_000))
    assert not index.is_failed
    assert index.usage.chunk_count == stored
    index.apply(IndexChange(deletes=(chunk_id(0),)))
    assert index.get(chunk_id(0)) is None
    put(index, 0)
    assert index.usage.chunk_count == stored
    index.close()
    reopened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    put(reopened, 100_001)
    assert reopened.usage.chunk_count == stored + 1
    reopened.close()


class FailingEnvironment:
    """An environment whose calls fail; counts them."""

    def __init__(self) -> None:
        self.begin_count = 0

    def begin(self, *arguments: object, **options: object) -> None:
        self.begin_count += 1
        raise lmdb.DiskError("mdb_txn_commit")

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def failing(index: Index) -> Iterator[FailingEnvironment]:
    environment = FailingEnvironment()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index._tables, "environment", environment)
        yield environment


def test_no_write_is_attempted_after_one_failed(index: Index, failing: FailingEnvironment) -> None:
    for _ in range(2):
        with pytest.raises(IndexFailure, match="cannot write"):
            index.apply(IndexChange(meta=meta()))
        with pytest.raises(IndexFailure, match="cannot write"):
            index.clear_chunks()
    assert failing.begin_count == 1


def test_reading_that_lmdb_refuses_is_a_failure(index: Index, failing: FailingEnvironment) -> None:
    questions = [
        lambda: index.get(chunk_id(1)),
        lambda: index.layout(LAYOUT_ID),
        lambda: index.usage.chunk_count,
        lambda: list(index.walks.records()),
    ]
    for question in questions:
        with pytest.raises(IndexFailure, match="cannot read"):
            question()
    assert not index.is_failed


def test_opening_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(IndexFailure, match=r"cannot open the index in .*nowhere"):
        Index.open(tmp_path / "nowhere", map_bytes=MAP_BYTES, readonly=True)
    assert not (tmp_path / "nowhere").exists()


def test_opening_another_lmdb_file_readonly_says_so(tmp_path: Path) -> None:
    lmdb.Environment(str(tmp_path), map_size=MAP_BYTES, max_dbs=8).close()
    with pytest.raises(IndexFailure, match="cannot open the index"):
        Index.open(tmp_path, map_bytes=MAP_BYTES, readonly=True)


def test_readers_and_writers_on_many_threads(index: Index) -> None:
    put(index, 0)
    failures: list[BaseException] = []
    start = threading.Barrier(5)

    def read() -> None:
        start.wait()
        try:
            for _ in range(300):
                first, second = index.get_many([chunk_id(0), chunk_id(0)])
                assert first == second
                assert first is not None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    for stamp in range(2, 30):
        record = replace(record_at(extent_at(0)), stamp=stamp)
        index.apply(IndexChange(puts=((chunk_id(0), record),)))
    for thread in threads:
        thread.join()
    assert failures == []
    last = index.get(chunk_id(0))
    assert last is not None
    assert last.stamp == 29
