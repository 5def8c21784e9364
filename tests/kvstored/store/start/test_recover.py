from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstored.format.chunk_record import RECORD_BYTES
from kvstored.format.geometry import Extent
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.store.index.entry import Table
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.space.chunk_columns import HELD
from kvstored.store.start import recover as recover_module
from kvstored.store.start.recover import RecoverError, allocator_of, occupy, recover
from tests.kvstored.store.index_stores import (
    CLASS_BYTES,
    MAP_BYTES,
    SLAB_BYTES,
    chunk_id,
    chunks_of,
    extent_at,
    memory_device_set,
    meta,
    record_at,
)
from tests.support.memory_folder import memory_folder
from tests.support.raw_index import raw_write


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
    assert chunks_of(recovered) == []
    assert recovered.next_stamp == 1
    assert recovered.dropped_count == 0
    assert recovered.allocator.used_bytes(0) == 0


def test_chunks_come_in_the_order_of_their_stamps(index: Index) -> None:
    put(index, 1, extent_at(0), 30)
    put(index, 2, extent_at(1), 10)
    put(index, 3, extent_at(0, device=1), 20)
    recovered = recover(index, memory_device_set())
    assert chunks_of(recovered) == [
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
    assert chunks_of(recovered) == []
    assert recovered.allocator.used_bytes(0) == CLASS_BYTES
    assert recovered.next_stamp == 9


def test_a_quarantined_claim_of_an_impossible_stamp_made_all_later_uses_look_held(
    index: Index,
) -> None:
    record = replace(record_at(extent_at(0), stamp=1), stamp=HELD + 8)
    index.apply(IndexChange(quarantines=((chunk_id(1), record),)))
    recovered = recover(index, memory_device_set())
    assert recovered.dropped_count == 1
    assert recovered.next_stamp < HELD


@pytest.mark.parametrize("newer", ["chunk", "quarantined"])
def test_the_newer_of_two_claims_to_an_extent_wins(index: Index, newer: str) -> None:
    put(index, 1, extent_at(0), 2 if newer == "chunk" else 1)
    old = record_at(extent_at(0), stamp=1 if newer == "chunk" else 2)
    index.apply(IndexChange(quarantines=((chunk_id(2), old),)))
    recovered = recover(index, memory_device_set())
    assert recovered.dropped_count == 1
    assert (index.get(chunk_id(1)) is not None) == (newer == "chunk")
    assert bool(list(index.walks.quarantined())) == (newer == "quarantined")


def test_overlapping_chunks_leave_the_newer_one(index: Index) -> None:
    put(index, 1, extent_at(0), 5)
    put(index, 2, extent_at(0), 9)
    put(index, 3, Extent(0, extent_at(0).offset, 2 * CLASS_BYTES), 7)
    recovered = recover(index, memory_device_set())
    assert [chunk for chunk, _ in chunks_of(recovered)] == [chunk_id(2)]
    assert recovered.dropped_count == 2
    assert [chunk for chunk, _ in index.walks.records()] == [chunk_id(2)]


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
    assert chunks_of(recovered) == []
    assert recovered.dropped_count == 1
    assert recovered.next_stamp == 5
    assert index.usage.chunk_count == 0


def test_damaged_records_are_dropped_in_batches(index: Index, monkeypatch) -> None:
    for number in range(5):
        put(index, number, extent_at(number), number)
    with raw_write(index, Table.CHUNKS) as transaction:
        for number in range(1, 5):
            transaction.put(chunk_id(number).encode(), bytes(RECORD_BYTES))
    monkeypatch.setattr(recover_module, "DROP_BATCH", 3)
    recovered = recover(index, memory_device_set())
    assert [chunk for chunk, _ in chunks_of(recovered)] == [chunk_id(0)]
    assert recovered.dropped_count == 4
    assert index.usage.chunk_count == 1


def test_index_of_another_device_set_is_refused(index: Index) -> None:
    index.apply(IndexChange(meta=replace(meta(), set_id=b"x" * 16)))
    with pytest.raises(RecoverError, match=f"belongs to device set {(b'x' * 16).hex()}"):
        recover(index, memory_device_set())


def test_incomplete_index_is_refused(index: Index) -> None:
    index.clear_chunks()
    with pytest.raises(RecoverError, match="is incomplete; rebuild it"):
        recover(index, memory_device_set())


@dataclass(frozen=True)
class ModelClaim:
    number: int
    extent: Extent
    stamp: int
    is_quarantined: bool


def model_recover(claims: list[ModelClaim]) -> tuple[dict[int, Extent], set[Extent], int]:
    """What one claim after the other, the newest first, leaves of them in an allocator."""
    allocator = allocator_of(memory_device_set())
    chunks: dict[int, Extent] = {}
    quarantined: set[Extent] = set()
    dropped_count = 0
    for claim in sorted(claims, key=lambda claim: (claim.stamp, claim.is_quarantined))[::-1]:
        if occupy(allocator, claim.extent) is not None:
            dropped_count += 1
        elif claim.is_quarantined:
            quarantined.add(claim.extent)
        else:
            chunks[claim.number] = claim.extent
    return chunks, quarantined, dropped_count


EXTENTS = st.builds(
    lambda position, slab, device, size: extent_at(position, slab=slab, device=device, size=size),
    st.integers(0, 3),
    st.integers(0, 4),
    st.integers(0, 2),
    st.sampled_from([CLASS_BYTES, CLASS_BYTES, 2 * CLASS_BYTES, CLASS_BYTES + 512]),
)


@given(extents=st.lists(st.tuples(EXTENTS, st.booleans()), max_size=25), data=st.data())
@settings(max_examples=80)
def test_contradictions_end_as_one_by_one(
    extents: list[tuple[Extent, bool]], data: st.DataObject
) -> None:
    stamps = data.draw(st.permutations(range(1, len(extents) + 1)))
    claims = [
        ModelClaim(number, extent, stamps[number], is_quarantined)
        for number, (extent, is_quarantined) in enumerate(extents)
    ]
    # The quarantine holds one entry for each start of an extent.
    starts = {
        (claim.extent.device_index, claim.extent.offset): claim.number
        for claim in claims
        if claim.is_quarantined
    }
    claims = [
        claim
        for claim in claims
        if not claim.is_quarantined
        or starts[claim.extent.device_index, claim.extent.offset] == claim.number
    ]
    with memory_folder() as folder, closing(Index.open(folder, map_bytes=MAP_BYTES)) as index:
        index.apply(IndexChange(meta=meta()))
        for claim in claims:
            record = record_at(claim.extent, stamp=claim.stamp)
            entry = (chunk_id(claim.number), record)
            index.apply(
                IndexChange(quarantines=(entry,))
                if claim.is_quarantined
                else IndexChange(puts=(entry,))
            )
        recovered = recover(index, memory_device_set())
        chunks, quarantined, dropped_count = model_recover(claims)
        expected = {chunk_id(number): extent for number, extent in chunks.items()}
        assert dict(chunks_of(recovered)) == expected
        assert {chunk: record.extent for chunk, record in index.walks.records()} == expected
        assert {record.extent for _, record in index.walks.quarantined()} == quarantined
        assert recovered.dropped_count == dropped_count
        assert recovered.next_stamp == max((claim.stamp for claim in claims), default=0) + 1
        for device in (0, 1):
            used = [e for e in (*chunks.values(), *quarantined) if e.device_index == device]
            assert recovered.allocator.used_bytes(device) == sum(e.byte_count for e in used)
        for extent in (*chunks.values(), *quarantined):
            recovered.allocator.free(extent)


@pytest.mark.parametrize("stamp", [2**63, 2**64 - 1])
def test_a_stamp_that_no_write_has_is_dropped(index: Index, stamp: int) -> None:
    """It would make the row of the chunk a held or an unused one, and so all later stamps."""
    record = replace(record_at(extent_at(0)), stamp=stamp)
    index.apply(IndexChange(puts=((chunk_id(1), record),)))
    recovered = recover(index, memory_device_set())
    assert recovered.dropped_count == 1
    assert recovered.table.clock == 1
