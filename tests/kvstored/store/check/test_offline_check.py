from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.geometry import ChunkGeometry
from kvstored.io.device import DeviceError
from kvstored.store.check import check_report
from kvstored.store.check.check_report import CheckReport, ProblemKind
from kvstored.store.check.chunk_check import window_slices
from kvstored.store.check.offline_check import check_store
from kvstored.store.index.entry import Table
from kvstored.store.index.index import Index, IndexChange
from tests.kvstored.store.index_stores import (
    MAP_BYTES,
    SLICE_BYTES,
    WrittenStore,
    chunk_id,
    extent_at,
    media,
    meta,
    record_at,
    write_chunk,
)
from tests.support.devices import BadPlacesDevice

CHUNK_COUNT = 12


class CheckedStore(WrittenStore):
    """A written store with its index."""

    index: Index

    def check(self) -> CheckReport:
        return check_store(self.index, self.device_set, lambda done, total: None)

    def kinds(self) -> list[ProblemKind]:
        return [problem.kind for problem in self.check().problems]

    def flip(self, number: int, inside: int) -> None:
        """Flips a bit of a chunk, counted from the start of its extent."""
        extent = self.records[chunk_id(number)].extent
        media(self.device_set, extent.device_index)[extent.offset + inside] ^= 1


@pytest.fixture
def store(tmp_path: Path):
    checked = CheckedStore()
    for number in range(1, CHUNK_COUNT + 1):
        checked.write(number)
    checked.index = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    checked.index.apply(IndexChange(puts=tuple(checked.records.items()), meta=meta()))
    yield checked
    checked.index.close()


def test_sound_store_has_no_problems(store: CheckedStore) -> None:
    steps: list[tuple[int, int]] = []
    report = check_store(store.index, store.device_set, lambda *step: steps.append(step))
    assert report.is_sound
    assert report.problems == ()
    assert report.chunk_count == CHUNK_COUNT
    assert report.verified_bytes == CHUNK_COUNT * sum(SLICE_BYTES)
    assert steps == [(n, CHUNK_COUNT) for n in [*range(1, CHUNK_COUNT + 1), CHUNK_COUNT]]


def test_check_changes_nothing(store: CheckedStore) -> None:
    before = [media(store.device_set, device).copy() for device in range(2)]
    store.check()
    assert all((media(store.device_set, device) == before[device]).all() for device in range(2))
    assert dict(store.index.walks.records()) == store.records


@pytest.mark.parametrize("inside", [4096, 9095, 12288])
def test_flipped_payload_is_a_slice_problem(store: CheckedStore, inside: int) -> None:
    store.flip(3, inside)
    report = store.check()
    (problem,) = report.problems
    assert problem.kind is ProblemKind.SLICE
    assert chunk_id(3).key.hex() in problem.where
    assert f"layer {0 if inside < 12288 else 2}" in problem.what
    lost_bytes = SLICE_BYTES[0] if inside < 12288 else SLICE_BYTES[2]
    assert report.verified_bytes == CHUNK_COUNT * sum(SLICE_BYTES) - lost_bytes
    assert not report.is_sound


def test_flipped_padding_is_no_problem(store: CheckedStore) -> None:
    store.flip(3, 4096 + SLICE_BYTES[0])
    assert store.check().is_sound


def test_reads_of_any_size_verify_the_same(store: CheckedStore, monkeypatch) -> None:
    monkeypatch.setattr("kvstored.store.check.offline_check.READ_BYTES", 4096)
    assert store.check().verified_bytes == CHUNK_COUNT * sum(SLICE_BYTES)
    store.flip(3, 9095)
    assert store.kinds() == [ProblemKind.SLICE]


def test_damaged_header_is_found(store: CheckedStore) -> None:
    store.flip(5, 200)
    assert store.kinds() == [ProblemKind.EXTENT_HEADER]


def test_header_of_another_write_is_found(store: CheckedStore) -> None:
    extent = store.records[chunk_id(5)].extent
    write_chunk(store.device_set, chunk_id(500), extent, stamp=77)
    (problem,) = store.check().problems
    assert problem.kind is ProblemKind.EXTENT_HEADER
    assert problem.what == "header and index differ in page checksum, chunk, stamp"


def test_slices_that_do_not_fit_are_found(store: CheckedStore) -> None:
    extent = store.records[chunk_id(5)].extent
    record = write_chunk(
        store.device_set, chunk_id(5), extent, stamp=5, slice_bytes=(extent.byte_count,)
    )
    store.index.apply(IndexChange(puts=((chunk_id(5), record),)))
    problems = {problem.what for problem in store.check().problems}
    assert "slices do not fit the extent" in problems


def test_damaged_slab_header_is_found(store: CheckedStore) -> None:
    offset = store.device_set.superblocks[1].slab_offset(0)
    media(store.device_set, 1)[offset] ^= 1
    (problem,) = store.check().problems
    assert problem.kind is ProblemKind.SLAB_HEADER
    assert problem.where == "slab 0 of memory-1"


@pytest.mark.parametrize("copy", [0, 1])
def test_damaged_superblock_copy_is_found(store: CheckedStore, copy: int) -> None:
    offset = store.device_set.superblocks[0].copy_offsets[copy]
    media(store.device_set, 0)[offset + 20] ^= 1
    assert store.kinds() == [ProblemKind.SUPERBLOCK]


@pytest.mark.parametrize("copy", [0, 1])
def test_superblock_copy_that_cannot_be_read_is_found(store: CheckedStore, copy: int) -> None:
    first, *others = store.device_set.devices
    offset = store.device_set.superblocks[0].copy_offsets[copy]
    store.device_set.devices = (BadPlacesDevice(first, [offset]), *others)
    (problem,) = store.check().problems
    assert problem.kind is ProblemKind.DEVICE
    assert problem.where == f"byte {offset} of memory-0"


def test_an_older_copy_of_the_index_is_found(store: CheckedStore) -> None:
    """Fails when ``check_age`` is not asked (seen: no problem at all)."""
    store.index.apply(IndexChange(meta=replace(meta(), epoch=0)))
    (problem,) = store.check().problems
    assert problem.kind is ProblemKind.INDEX_META
    assert "older copy, of epoch 0 where its devices are in epoch 1" in problem.what


def test_superblock_copy_of_an_earlier_epoch_is_what_a_start_cut_short_leaves(
    store: CheckedStore,
) -> None:
    superblock = store.device_set.superblocks[0]
    page = memoryview(replace(superblock, epoch=0).encode())
    media(store.device_set, 0)[superblock.copy_offsets[1] :][:4096] = page
    assert store.check().problems == ()


@pytest.mark.parametrize("change", [{"device_id": b"x" * 16}, {"epoch": 0, "device_index": 1}])
def test_superblock_copy_of_another_device_is_found(
    store: CheckedStore, change: dict[str, Any]
) -> None:
    superblock = store.device_set.superblocks[0]
    page = memoryview(replace(superblock, **change).encode())
    media(store.device_set, 0)[superblock.copy_offsets[1] :][:4096] = page
    (problem,) = store.check().problems
    assert problem.what == "differs from the other copy"


def test_entries_that_share_an_extent_are_found(store: CheckedStore) -> None:
    taken = store.records[chunk_id(2)]
    store.index.apply(IndexChange(puts=((chunk_id(99), record_at(taken.extent)),)))
    (problem,) = store.check().problems
    assert problem.kind is ProblemKind.EXTENT
    assert "overlaps" in problem.what


def test_entries_outside_the_devices_are_found(store: CheckedStore) -> None:
    store.index.apply(IndexChange(puts=((chunk_id(99), record_at(extent_at(0, device=7))),)))
    assert store.kinds() == [ProblemKind.EXTENT]


def test_quarantined_extents_are_not_verified_but_have_their_place(store: CheckedStore) -> None:
    chunk, record = chunk_id(4), store.records[chunk_id(4)]
    store.flip(4, 4096)
    store.index.apply(IndexChange(quarantines=((chunk, record),)))
    assert store.check().is_sound
    store.index.apply(IndexChange(puts=((chunk, record),)))
    assert store.kinds() == [ProblemKind.EXTENT]


def test_damaged_index_entry_is_found(store: CheckedStore) -> None:
    with store.index._tables.environment.begin(write=True) as transaction:
        transaction.put(
            chunk_id(3).encode(), b"garbage", db=store.index._tables.handles[Table.CHUNKS]
        )
    report = store.check()
    (problem,) = report.problems
    assert problem.kind is ProblemKind.INDEX_ENTRY
    assert chunk_id(3).encode().hex() in problem.where
    assert report.chunk_count == CHUNK_COUNT - 1


def test_index_of_another_set_is_found(store: CheckedStore) -> None:
    store.index.apply(IndexChange(meta=meta(set_id=b"x" * 16)))
    assert store.kinds() == [ProblemKind.INDEX_META]


def test_unsound_index_tree_ends_the_check_with_a_problem(store: CheckedStore, monkeypatch) -> None:
    monkeypatch.setattr(store.index.walks, "_batch", lambda table, start: ([], True))
    assert store.kinds() == [ProblemKind.INDEX_TREE]


def test_unreadable_device_is_a_problem_everywhere(store: CheckedStore, monkeypatch) -> None:
    device = store.device_set.devices[0]

    def fail(buffers: object, offset: int) -> None:
        raise DeviceError(device.facts.name, "read", "medium error")

    monkeypatch.setattr(device, "readv", fail)
    kinds = store.kinds()
    assert set(kinds) == {ProblemKind.DEVICE}
    assert len(kinds) == 2 + CHUNK_COUNT // 2 + 1


def test_problems_beyond_the_limit_are_counted(store: CheckedStore, monkeypatch) -> None:
    monkeypatch.setattr(check_report, "PROBLEMS_MAX", 3)
    for number in range(1, 8):
        store.flip(number, 0)
    report = store.check()
    assert (len(report.problems), report.problem_count) == (3, 7)


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=8), st.integers(1, 6))
def test_window_parts_cover_each_slice_exactly(sizes: list[int], pages: int) -> None:
    geometry = ChunkGeometry.of_slices(tuple(sizes))
    window_bytes = pages * 4096
    covered: dict[int, list[int]] = {layer: [] for layer in range(len(sizes))}
    for start in range(0, geometry.extent_bytes, window_bytes):
        for layer, begin, end in window_slices(geometry, start, start + window_bytes):
            assert 0 <= begin < end <= window_bytes
            covered[layer] += [start + begin, start + end]
    for layer, byte_count in enumerate(sizes):
        edges = covered[layer]
        first = geometry.slice_offsets[layer]
        assert edges[:1] + edges[-1:] == ([first, first + byte_count] if byte_count else [])
        assert edges[1:-1:2] == edges[2::2]
