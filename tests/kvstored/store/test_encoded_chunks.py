"""Chunks whose slices have lengths of their own: found by headers, checked, written, read."""

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import ExtentHeader, SliceSum
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, Extent
from kvstored.format.slice_lengths import SliceLengths
from kvstored.io.device import DeviceError
from kvstored.io.memory import AlignedMemory
from kvstored.io.thread_engine import ThreadEngine
from kvstored.store.check.check_report import ProblemKind
from kvstored.store.check.offline_check import check_store
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.start import rebuild as rebuild_module
from kvstored.store.start.rebuild import rebuild_index
from kvstored.store.write.writer import SealedChunk, Writer, WriteTicket
from tests.kvstored.store.index_stores import (
    CLASS_BYTES,
    LAYOUT_ID,
    MAP_BYTES,
    chunk_id,
    extent_at,
    media,
    memory_device_set,
    meta,
    write_chunk,
    write_slab_header,
)

LENGTHS = (4097, 0, 300)
OTHERS = (1, 0, 8192)
Entry = tuple[ChunkRecord, tuple[int, ...]]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    yield opened
    opened.close()


@pytest.fixture
def device_set() -> DeviceSet:
    return memory_device_set()


def written(
    device_set: DeviceSet, number: int, lengths: tuple[int, ...], *, position: int, stamp: int = 1
) -> Entry:
    """An encoded chunk on the first device."""
    write_slab_header(device_set, device=0, slab=0)
    record = write_chunk(
        device_set,
        chunk_id(number),
        extent_at(position),
        stamp=stamp,
        slice_bytes=lengths,
        is_encoded=True,
    )
    return record, lengths


def put(index: Index, number: int, entry: Entry, *, lengths: tuple[int, ...] | None = None) -> None:
    record, known = entry
    sums = SliceLengths(lengths=lengths or known, header_checksum=record.header_checksum)
    index.apply(
        IndexChange(puts=((chunk_id(number), record),), lengths=((chunk_id(number), sums),))
    )


def known_lengths(index: Index, number: int) -> tuple[int, ...] | None:
    record = index.get(chunk_id(number))
    assert record is not None
    return index.lengths([(chunk_id(number), record)])[0]


@pytest.mark.parametrize("batch", [1, 100])
def test_a_rebuild_finds_the_lengths_of_slices(
    index: Index, device_set: DeviceSet, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", batch)
    entries = {1: written(device_set, 1, LENGTHS, position=0)}
    entries[2] = written(device_set, 2, OTHERS, position=1, stamp=2)
    write_slab_header(device_set, device=1, slab=0)
    raw = write_chunk(device_set, chunk_id(3), extent_at(0, device=1), stamp=3)
    rebuild_index(device_set, index, lambda *_: None)
    assert {number: index.get(chunk_id(number)) for number in (1, 2, 3)} == {
        1: entries[1][0],
        2: entries[2][0],
        3: raw,
    }
    assert [known_lengths(index, number) for number in (1, 2, 3)] == [LENGTHS, OTHERS, None]


@pytest.mark.parametrize("batch", [1, 100])
def test_of_two_extents_of_one_chunk_the_newer_lengths_are_kept(
    index: Index, device_set: DeviceSet, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", batch)
    written(device_set, 1, OTHERS, position=0, stamp=1)
    written(device_set, 1, LENGTHS, position=1, stamp=2)
    written(device_set, 1, OTHERS, position=2, stamp=1)
    rebuild_index(device_set, index, lambda *_: None)
    assert known_lengths(index, 1) == LENGTHS


def kinds(index: Index, device_set: DeviceSet) -> list[ProblemKind]:
    return [p.kind for p in check_store(index, device_set, lambda *_: None).problems]


def test_a_sound_chunk_has_no_problem(index: Index, device_set: DeviceSet) -> None:
    index.apply(IndexChange(meta=meta()))
    put(index, 1, written(device_set, 1, LENGTHS, position=0))
    report = check_store(index, device_set, lambda *_: None)
    assert report.is_sound
    assert report.verified_bytes == sum(LENGTHS)


@pytest.mark.parametrize("inside", [HEADER_BYTES + 4096, HEADER_BYTES + 8192 + 299])
def test_the_check_finds_damage_in_the_bytes_that_are_stored(
    index: Index, device_set: DeviceSet, inside: int
) -> None:
    index.apply(IndexChange(meta=meta()))
    put(index, 1, written(device_set, 1, LENGTHS, position=0))
    media(device_set, 0)[extent_at(0).offset + inside] ^= 1
    assert kinds(index, device_set) == [ProblemKind.SLICE]


@pytest.mark.parametrize("inside", [HEADER_BYTES + 4097, HEADER_BYTES + 8192 + 300])
def test_padding_behind_a_slice_is_nobody_s(
    index: Index, device_set: DeviceSet, inside: int
) -> None:
    index.apply(IndexChange(meta=meta()))
    put(index, 1, written(device_set, 1, LENGTHS, position=0))
    media(device_set, 0)[extent_at(0).offset + inside] ^= 1
    assert kinds(index, device_set) == []


def test_the_check_finds_lengths_that_are_gone_or_others(
    index: Index, device_set: DeviceSet
) -> None:
    index.apply(IndexChange(meta=meta()))
    entry = written(device_set, 1, LENGTHS, position=0)
    put(index, 1, entry, lengths=OTHERS)
    assert kinds(index, device_set) == [ProblemKind.INDEX_ENTRY]
    index.apply(IndexChange(deletes=(chunk_id(1),)))
    index.apply(IndexChange(puts=((chunk_id(1), entry[0]),)))
    assert kinds(index, device_set) == [ProblemKind.INDEX_ENTRY]


@pytest.mark.parametrize("is_encoded", [True, False])
def test_a_chunk_is_written_as_long_as_it_is(device_set: DeviceSet, is_encoded: bool) -> None:
    geometry = ChunkGeometry.of_slices(LENGTHS)
    frame = AlignedMemory(CLASS_BYTES).view
    frame[HEADER_BYTES:] = bytes([7]) * (CLASS_BYTES - HEADER_BYTES)
    sealed = SealedChunk(
        chunk=chunk_id(1),
        parent_key=b"",
        layout_id=LAYOUT_ID,
        class_bytes=CLASS_BYTES,
        token_count=16,
        geometry=geometry,
        slices=tuple(SliceSum(length, 1) for length in LENGTHS),
        frame=frame,
        is_encoded=is_encoded,
    )
    engine = ThreadEngine(device_set.devices, depth=1)
    outcome: Future[ChunkRecord | DeviceError] = Future()
    extent = Extent(0, extent_at(0).offset, CLASS_BYTES)
    Writer(engine=engine, device_ids=device_set.device_ids).write(
        WriteTicket(sealed=sealed, extent=extent, epoch=1, stamp=1), outcome.set_result
    )
    record = outcome.result(10)
    engine.close()
    assert isinstance(record, ChunkRecord)
    stored = media(device_set, 0)[extent.offset : extent.end]
    assert ExtentHeader.decode(stored[:HEADER_BYTES].tobytes()).is_encoded is is_encoded
    assert np.count_nonzero(stored[HEADER_BYTES:]) == geometry.extent_bytes - HEADER_BYTES
    change = sealed.change(record)
    assert change.puts == ((chunk_id(1), record),)
    wanted = SliceLengths(lengths=LENGTHS, header_checksum=record.header_checksum)
    assert change.lengths == (((chunk_id(1), wanted),) if is_encoded else ())
    assert replace(change, lengths=()) == IndexChange(puts=change.puts)
