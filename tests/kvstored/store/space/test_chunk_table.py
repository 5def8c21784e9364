"""The table of chunks against plain dictionaries."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_columns import ChunkColumns
from kvstored.store.space.chunk_table import ABSENT, HELD, SEGMENT_ROWS, UNUSED, ChunkTable
from kvstored.store.space.slab_census import SlabCensus
from kvstored.store.space.slab_geometry import SlabGeometry
from tests.support.untraced import UNTRACED

KIB = 1024
GEOMETRY = SlabGeometry(64 * KIB, (2, 2), 1024 * KIB, 4 * KIB)
CLASSES = (8 * KIB, 12 * KIB)
"""Slabs of an even index have the first, the others the second."""


def chunk_id(number: int) -> ChunkId:
    return ChunkId(b"n" * 16, number.to_bytes(32, "big"))


def extent_of(slot: int) -> Extent:
    """One of 24 extents: 7 and 5 in the slabs of each device."""
    device, rest = divmod(slot, 12)
    slab, position = (0, rest) if rest < 7 else (1, rest - 7)
    return GEOMETRY.extent(device, slab, position, CLASSES[slab])


def number_of(extent: Extent) -> int:
    return 2 * extent.device_index + GEOMETRY.slab_index(extent)


class ChunkTableMachine(RuleBasedStateMachine):
    """Random operations; the model has the extent and the time of use of each chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
        self.model: dict[ChunkId, tuple[Extent, int]] = {}
        self.time = 1

    def free_extent(self, data: st.DataObject) -> Extent | None:
        taken = {extent for extent, _ in self.model.values()}
        free = [extent for slot in range(24) if (extent := extent_of(slot)) not in taken]
        return data.draw(st.sampled_from(free)) if free else None

    @rule(data=st.data(), number=st.integers(0, 30))
    def insert(self, data: st.DataObject, number: int) -> None:
        extent = self.free_extent(data)
        if extent is not None:
            self.table.insert(chunk_id(number), extent)
            self.model[chunk_id(number)] = extent, self.time
            self.time += 1

    @rule(data=st.data(), number=st.integers(0, 30), time=st.integers(0, 5))
    def insert_used_long_ago(self, data: st.DataObject, number: int, time: int) -> None:
        extent = self.free_extent(data)
        if extent is not None:
            self.table.insert(chunk_id(number), extent, time=time)
            self.model[chunk_id(number)] = extent, time

    @rule(number=st.integers(0, 30))
    def touch(self, number: int) -> None:
        self.table.touch([chunk_id(number).encode()])
        if chunk_id(number) in self.model:
            self.model[chunk_id(number)] = self.model[chunk_id(number)][0], self.time
            self.time += 1

    @rule(number=st.integers(0, 30))
    def hold(self, number: int) -> None:
        self.table.touch([chunk_id(number).encode()], holds=True)
        if chunk_id(number) in self.model:
            self.model[chunk_id(number)] = self.model[chunk_id(number)][0], self.time | HELD
            self.time += 1

    @rule(number=st.integers(0, 30), time=st.none() | st.integers(0, 40))
    def remove(self, number: int, time: int | None) -> None:
        self.table.remove(chunk_id(number), time=time)
        if time is None or self.model.get(chunk_id(number), (None, None))[1] == time:
            self.model.pop(chunk_id(number), None)

    @rule()
    def load(self) -> None:
        """A table that is filled from the blocks of another has the same chunks, held ones not."""
        self.model = {chunk: (one, time & ~HELD) for chunk, (one, time) in self.model.items()}
        columns, slabs = ChunkColumns(), SlabCensus(GEOMETRY)
        for block in self.table.blocks():
            places, is_possible = GEOMETRY.places(block.devices, block.offsets, block.byte_counts)
            assert is_possible.all()
            assert not slabs.claim_classes(places, block.byte_counts).any()
            columns.append(block.identities, places, block.stamps)
        loaded = ChunkTable(GEOMETRY, columns=columns, slabs=slabs)
        loaded.clock = self.table.clock
        self.table = loaded

    @invariant()
    def chunks_are_those_of_the_model(self) -> None:
        assert len(self.table) == len(self.model)
        chunks = [chunk_id(number) for number in range(31)]
        rows = self.table.rows([chunk.encode() for chunk in chunks])
        for chunk, row in zip(chunks, rows, strict=True):
            if chunk in self.model:
                extent, time = self.model[chunk]
                assert self.table.use(row) == (chunk, time)
                assert self.table.device(row) == extent.device_index
                assert self.table.slab(chunk) == number_of(extent)
            else:
                assert row == ABSENT
                assert self.table.slab(chunk) is None

    @invariant()
    def slabs_are_those_of_the_model(self) -> None:
        for slab in range(4):
            wanted = {
                (chunk, extent, time)
                for chunk, (extent, time) in self.model.items()
                if number_of(extent) == slab
            }
            assert set(self.table.claims_in_slab(slab)) == wanted
            assert self.table.slabs.chunk_count(slab) == len(wanted)

    @invariant()
    def classes_are_those_of_the_model(self) -> None:
        sizes = [extent.byte_count for extent, _ in self.model.values()]
        assert self.table.row_count(None) == len(sizes)
        for class_bytes in (*CLASSES, 4 * KIB):
            assert self.table.row_count(class_bytes) == sizes.count(class_bytes)
        for number, times in enumerate(self.table.times.segments()):
            rows = np.flatnonzero(times != UNUSED)
            assert [
                class_bytes
                for class_bytes in CLASSES
                for _ in range(int(self.table.is_of_class(number, rows, class_bytes).sum()))
            ] == sorted(sizes)

    @invariant()
    def rows_name_their_chunks(self) -> None:
        (times,) = list(self.table.times.segments()) or [np.zeros(0, np.uint64)]
        found = dict(self.table.use(row) for row in np.flatnonzero(times != UNUSED).tolist())
        assert found == {chunk: time for chunk, (_, time) in self.model.items()}


ChunkTableMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40)
TestChunkTableMachine = UNTRACED(ChunkTableMachine.TestCase)

LARGE = SlabGeometry(2 * SEGMENT_ROWS * 8 * KIB, (2,), 0, 0)


def test_a_held_chunk_has_a_time_after_all_uses_until_it_is_used() -> None:
    """What follows a start does not know of holds: blocks have the times at which these began."""
    table = ChunkTable(GEOMETRY)
    for number in range(2):
        table.insert(chunk_id(number), extent_of(number))
    identity = chunk_id(0).encode()
    (row,) = table.rows([identity])
    table.touch([identity], holds=True)
    assert table.use(row)[1] == 3 | HELD
    assert table.clock == 4
    assert sorted(time for block in table.blocks() for time in block.stamps.tolist()) == [2, 3]
    table.touch([identity])
    assert table.use(row)[1] == 4


def test_rows_in_many_segments() -> None:
    count = SEGMENT_ROWS + 100
    columns, slabs = ChunkColumns(), SlabCensus(LARGE)
    numbers = np.arange(count, dtype=np.uint64)
    identities = np.zeros((count, 48), np.uint8)
    identities[:, 40:] = numbers.view(np.uint8).reshape(-1, 8)
    class_bytes = np.full(count, 8 * KIB, np.uint64)
    assert not slabs.claim_classes(numbers, class_bytes).any()
    # In unequal parts, so that segments begin within one.
    for part in (slice(0, 1), slice(1, 40_000), slice(40_000, count)):
        columns.append(identities[part], numbers[part], numbers[part])
    table = ChunkTable(LARGE, columns=columns, slabs=slabs)
    assert len(table) == table.row_count(8 * KIB) == count
    assert columns.places().tolist() == numbers.tolist()
    asked = [0, 1, SEGMENT_ROWS - 1, SEGMENT_ROWS, count - 1]
    wanted = [identities[row].tobytes() for row in asked]
    assert table.rows([*wanted, b"x" + bytes(47)]) == [*asked, ABSENT]
    assert table.rows([]) == []
    assert [table.use(row)[0].encode() for row in asked] == wanted
    for number in range(30):
        table.insert(chunk_id(1000 + number), Extent(0, (count + number) * 8 * KIB, 8 * KIB))
    assert len(table) == count + 30
    assert sum(len(block) for block in table.blocks()) == count + 30


def test_a_segment_begins_when_the_last_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, slabs = ChunkColumns(), SlabCensus(LARGE)
    columns.append(
        np.zeros((SEGMENT_ROWS, 48), np.uint8),
        np.arange(SEGMENT_ROWS, dtype=np.uint64),
        np.full(SEGMENT_ROWS, UNUSED, np.uint64),
    )
    table = ChunkTable(LARGE, columns=columns, slabs=slabs)
    table.insert(chunk_id(1), Extent(0, 0, 8 * KIB))
    assert len(list(table.times.segments())) == 2
    assert table.use(SEGMENT_ROWS)[0] == chunk_id(1)


def test_chunks_whose_tags_are_equal_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with keys that were chosen for it by somebody who knows the secret."""
    monkeypatch.setattr(ChunkTable, "_tag", lambda self, identity: 77)
    monkeypatch.setattr(
        ChunkTable, "_tags", lambda self, flat: np.full(len(flat) // 48, 77, np.uint64)
    )
    table = ChunkTable(GEOMETRY)
    for number in range(12):
        table.insert(chunk_id(number), extent_of(number * 2))
    table.remove(chunk_id(3))
    identities = [chunk_id(number).encode() for number in range(13)]
    found = table.rows(identities)
    assert found[3] == found[12] == ABSENT
    there = [number for number in range(12) if number != 3]
    assert [table.use(found[number])[0] for number in there] == list(map(chunk_id, there))


def test_two_tables_have_different_secrets() -> None:
    identity = chunk_id(1).encode()
    assert len({ChunkTable(GEOMETRY)._tag(identity) for _ in range(4)}) == 4


def test_one_tag_and_many_are_computed_alike() -> None:
    table = ChunkTable(GEOMETRY)
    identities = [np.random.default_rng(seed).bytes(48) for seed in range(50)]
    many = table._tags(np.frombuffer(b"".join(identities), np.uint8)).tolist()
    assert many == [table._tag(identity) for identity in identities]


def table_of_two_slabs() -> ChunkTable:
    """Of device 0: a chunk in a slab of the first class, two in one of the second."""
    table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
    for number, slot in enumerate((0, 7, 8)):
        table.insert(chunk_id(number), extent_of(slot), time=10 + number)
    return table


def test_claims_of_a_slab_are_its_chunks_with_extent_and_time() -> None:
    table = table_of_two_slabs()
    claims = table.claims_in_slab(1)
    assert sorted(claims, key=lambda claim: claim[2]) == [
        (chunk_id(1), extent_of(7), 11),
        (chunk_id(2), extent_of(8), 12),
    ]
    assert table.claims_in_slab(3) == []


def test_a_row_tells_its_device() -> None:
    table = ChunkTable(GEOMETRY)
    for number, slot in enumerate((0, 12)):
        table.insert(chunk_id(number), extent_of(slot))
    rows = table.rows([chunk_id(number).encode() for number in range(2)])
    assert [table.device(row) for row in rows] == [0, 1]


def test_a_sequence_without_chunks_here_is_no_use() -> None:
    table = table_of_two_slabs()
    clock = table.clock
    table.touch([chunk_id(9).encode()], together=True)
    assert table.clock == clock


def test_a_sequence_that_is_used_again_is_one_bundle_with_one_time() -> None:
    table = ChunkTable(GEOMETRY)
    sequence = [chunk_id(number).encode() for number in range(2)]
    for number in range(2):
        table.insert(chunk_id(number), extent_of(number))
    for _ in range(2):
        table.touch(sequence, together=True)
        assert {table.use(row)[1] for row in table.rows(sequence)} == {table.clock - 1}


def test_a_chunk_that_was_used_since_is_not_removed() -> None:
    table = table_of_two_slabs()
    assert not table.remove(chunk_id(1), time=10)
    assert table.slab(chunk_id(1)) is not None
    assert table.remove(chunk_id(1), time=11)
    assert table.slab(chunk_id(1)) is None


def test_chunks_of_a_sequence_are_put_together_without_a_use() -> None:
    table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
    for number in range(3):
        table.insert(chunk_id(number), extent_of(number))
    before, identities = table.clock, [chunk_id(number).encode() for number in (0, 1, 9)]
    table.put_together([chunk_id(9).encode()], before=before)
    table.put_together(identities, before=before)
    assert table.clock == before
    table.touch(identities[:1])
    rows = table.rows([chunk_id(number).encode() for number in range(3)])
    # A use of one is one of both, and the third goes by itself.
    assert min(table.times.of(row) for row in rows[:2]) > table.times.of(rows[2])
