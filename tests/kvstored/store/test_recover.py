from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvstored.format.extent import Extent
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.store import recover as recover_module
from kvstored.store.index import Index, IndexChange
from kvstored.store.index_entry import Table
from kvstored.store.recover import RecoverError, recover
from tests.kvstored.store.index_stores import (
    CLASS_BYTES,
    MAP_BYTES,
    SLAB_BYTES,
    chunk_id,
    extent_at,
    memory_device_set,
    meta,
    record_at,
)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    opened.apply(IndexChange(meta=meta()))
    yield opened
    opened.close()


def put(index: Index, number: int, extent: Extent, stamp: int) -> None:
    index.apply(IndexChange(puts=((chunk_id(number), record_at(extent, stamp=stamp)),)))


def test_empty_index_recovers_to_nothing(index: Index) -> None:
    recovered = recover(index, memory_device_set())
    assert recovered.chunks == []
    assert recovered.next_stamp == 1
    assert recovered.dropped_count == 0
    assert recovered.allocator.used_bytes(0) == 0


def test_chunks_come_in_the_order_of_their_stamps(index: Index) -> None:
    put(index, 1, extent_at(0), 30)
    put(index, 2, extent_at(1), 10)
    put(index, 3, extent_at(0, device=1), 20)
    recovered = recover(index, memory_device_set())
    assert recovered.chunks == [
        (chunk_id(2), extent_at(1)),
        (chunk_id(3), extent_at(0, device=1)),
        (chunk_id(1), extent_at(0)),
    ]
    assert recovered.next_stamp == 31
    assert recovered.allocator.used_bytes(0) == 2 * CLASS_BYTES
    assert recovered.allocator.used_bytes(1) == CLASS_BYTES


def test_recovered_extents_are_not_handed_out(index: Index) -> None:
    for position in range(3):
        put(index, position, extent_at(position), position)
    allocator = recover(index, memory_device_set(1)).allocator
    taken = {extent_at(position) for position in range(3)}
    while (allocation := allocator.allocate(CLASS_BYTES, 0)) is not None:
        assert allocation.extent not in taken
        taken.add(allocation.extent)
    assert len(taken) == 4 * ((SLAB_BYTES - SLAB_HEADER_BYTES) // CLASS_BYTES)


def test_quarantined_extents_stay_used_and_are_not_served(index: Index) -> None:
    record = record_at(extent_at(0), stamp=8)
    index.apply(IndexChange(quarantines=((chunk_id(1), record),)))
    recovered = recover(index, memory_device_set())
    assert recovered.chunks == []
    assert recovered.allocator.used_bytes(0) == CLASS_BYTES
    assert recovered.next_stamp == 9


@pytest.mark.parametrize("newer", ["chunk", "quarantined"])
def test_the_newer_of_two_claims_to_an_extent_wins(index: Index, newer: str) -> None:
    put(index, 1, extent_at(0), 2 if newer == "chunk" else 1)
    old = record_at(extent_at(0), stamp=1 if newer == "chunk" else 2)
    index.apply(IndexChange(quarantines=((chunk_id(2), old),)))
    recovered = recover(index, memory_device_set())
    assert recovered.dropped_count == 1
    assert (index.get(chunk_id(1)) is not None) == (newer == "chunk")
    assert bool(list(index.quarantined())) == (newer == "quarantined")


def test_overlapping_chunks_leave_the_newer_one(index: Index) -> None:
    put(index, 1, extent_at(0), 5)
    put(index, 2, extent_at(0), 9)
    put(index, 3, Extent(0, extent_at(0).offset, 2 * CLASS_BYTES), 7)
    recovered = recover(index, memory_device_set())
    assert [chunk for chunk, _ in recovered.chunks] == [chunk_id(2)]
    assert recovered.dropped_count == 2
    assert [chunk for chunk, _ in index.records()] == [chunk_id(2)]


@pytest.mark.parametrize(
    "extent",
    [
        extent_at(0, device=2),
        extent_at(0, slab=4),
        Extent(0, 0, CLASS_BYTES),
        Extent(0, extent_at(0).offset + 4096, CLASS_BYTES),
        Extent(0, extent_at(0).offset, 0),
        Extent(0, extent_at(0).offset, 4096),
        Extent(0, extent_at(0).offset, CLASS_BYTES + 1),
        Extent(0, extent_at(0).offset, SLAB_BYTES),
        Extent(0, 2**64 - 1, CLASS_BYTES),
    ],
)
def test_impossible_extents_are_dropped_from_the_index(index: Index, extent: Extent) -> None:
    put(index, 1, extent, 4)
    recovered = recover(index, memory_device_set())
    assert recovered.chunks == []
    assert recovered.dropped_count == 1
    assert recovered.next_stamp == 5
    assert index.chunk_count == 0


def test_damaged_records_are_dropped_in_batches(index: Index, monkeypatch) -> None:
    for number in range(5):
        put(index, number, extent_at(number), number)
    with index._environment.begin(index._tables[Table.CHUNKS], write=True) as transaction:
        for number in range(1, 5):
            transaction.put(chunk_id(number).encode(), b"garbage")
    monkeypatch.setattr(recover_module, "DROP_BATCH", 3)
    recovered = recover(index, memory_device_set())
    assert [chunk for chunk, _ in recovered.chunks] == [chunk_id(0)]
    assert recovered.dropped_count == 4
    assert index.chunk_count == 1


def test_index_of_another_device_set_is_refused(index: Index) -> None:
    index.apply(IndexChange(meta=replace(meta(), set_id=b"x" * 16)))
    with pytest.raises(RecoverError, match=f"belongs to device set {(b'x' * 16).hex()}"):
        recover(index, memory_device_set())


def test_incomplete_index_is_refused(index: Index) -> None:
    index.clear_chunks()
    with pytest.raises(RecoverError, match="is incomplete; rebuild it"):
        recover(index, memory_device_set())
