from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.store import index_walk
from kvstored.store.index import Index, IndexChange, IndexDamagedError, IndexFailure
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    chunk_id,
    extent_at,
    record_at,
)

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


def test_walks_in_many_batches_see_everything_once(index: Index, monkeypatch) -> None:
    put(index, *range(50))
    sequence = SequenceRecord(layout_id=LAYOUT_ID, keys=(b"k" * 32,) * 10)
    names = [f"{number:03}" for number in range(20)]
    index.apply(IndexChange(sequence_puts=tuple((NAMESPACE_ID, name, sequence) for name in names)))
    monkeypatch.setattr(index_walk, "WALK_ENTRIES", 7)
    assert [chunk for chunk, _ in index.records()] == [chunk_id(n) for n in range(50)]
    monkeypatch.setattr(index_walk, "WALK_BYTES", 500)
    assert index.sequences(NAMESPACE_ID) == names
    monkeypatch.setattr(index_walk, "WALK_ENTRIES", 25)
    assert len(list(index.records())) == 50


def test_a_walk_may_be_interleaved_with_changes(index: Index, monkeypatch) -> None:
    put(index, *range(10))
    monkeypatch.setattr(index_walk, "WALK_ENTRIES", 2)
    seen = []
    for chunk, _ in index.records():
        seen.append(chunk)
        index.apply(IndexChange(deletes=(chunk,)))
    assert seen == [chunk_id(n) for n in range(10)]
    assert index.chunk_count == 0


def test_a_tree_that_leads_in_a_circle_is_noticed(index: Index, monkeypatch) -> None:
    put(index, 1, 2)
    circle = [(chunk_id(n).encode(), b"") for n in (1, 2, 1)]
    monkeypatch.setattr(index, "_batch", lambda table, start: (circle, False))
    with pytest.raises(IndexFailure, match=r"CHUNKS of the index .* is out of order"):
        list(index.entries())


def test_a_table_that_has_fewer_entries_than_it_claims_is_noticed(
    index: Index, monkeypatch
) -> None:
    put(index, 1, 2)
    monkeypatch.setattr(index, "_batch", lambda table, start: ([], True))
    with pytest.raises(IndexFailure, match="has 0 entries but claims 2"):
        list(index.damaged_entries())


@pytest.mark.parametrize("scan_entries", [1, 3, 50, 1000])
def test_batches_of_the_chunk_table_hold_everything_once(
    index: Index, monkeypatch, scan_entries: int
) -> None:
    monkeypatch.setattr(index_walk, "SCAN_ENTRIES", scan_entries)
    assert list(index.chunk_batches()) == []
    put(index, *range(50))
    batches = list(index.chunk_batches())
    assert all(len(keys) == len(values) <= scan_entries for keys, values in batches)
    assert [key for keys, _ in batches for key in keys] == [chunk_id(n).encode() for n in range(50)]
    values = [value for _, batch in batches for value in batch]
    records = [index.get(chunk_id(n)) for n in range(50)]
    assert values == [record.encode(chunk_id(n)) for n, record in enumerate(records) if record]


@pytest.mark.parametrize("scan_entries", [2, 100])
@pytest.mark.parametrize("numbers", [(1, 3, 2), (1, 2, 1), (1, 1)])
def test_batches_out_of_order_are_noticed(
    index: Index, monkeypatch, scan_entries: int, numbers: tuple[int, ...]
) -> None:
    put(index, 1, 2, 3)
    circle = [(chunk_id(n).encode(), b"") for n in numbers]

    def circling(cursor: object, count: int) -> list[tuple[bytes, bytes]]:
        taken, circle[:] = circle[:count], circle[count:]
        return taken

    monkeypatch.setattr(index_walk, "SCAN_ENTRIES", scan_entries)
    monkeypatch.setattr(index_walk, "islice", circling)
    with pytest.raises(IndexDamagedError, match=r"CHUNKS of the index .* (out of order|claims 3)"):
        list(index.chunk_batches())


def test_batches_that_are_fewer_than_the_table_claims_are_noticed(
    index: Index, monkeypatch
) -> None:
    put(index, 1, 2)
    monkeypatch.setattr(index_walk, "islice", lambda cursor, count: [])
    with pytest.raises(IndexDamagedError, match="has 0 entries but claims 2"):
        list(index.chunk_batches())
