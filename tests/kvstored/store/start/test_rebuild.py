"""An index made from headers has what the lost one had.

The tests of what cannot be read fail when ``scan_slab`` gives up with the first error (seen:
the slab's other chunks missing too) and when ``rebuild_index`` does not count (seen: no
line for the operator).
"""

from pathlib import Path

import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.io.device import DeviceError
from kvstored.store.index.entry import Table
from kvstored.store.index.failure import IndexFullError
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.room import chunk_entries
from kvstored.store.index.usage import IndexUsage
from kvstored.store.start import rebuild as rebuild_module
from kvstored.store.start.rebuild import Unread, rebuild_index
from kvstored.store.start.recover import recover
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    SLAB_COUNT,
    WrittenStore,
    chunk_id,
    chunks_of,
    extent_at,
    media,
    memory_device_set,
    meta,
    record_at,
    write_chunk,
    write_slab_header,
)
from tests.support.devices import BadPlacesDevice, OnceWrongDevice


@pytest.fixture
def index(tmp_path: Path):
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    yield opened
    opened.close()


def no_progress(done: int, total: int) -> None:
    """Nobody watches."""


def test_rebuilt_index_has_the_records_of_the_lost_one(index: Index) -> None:
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    steps: list[tuple[int, int]] = []
    rebuilt = rebuild_index(store.device_set, index, lambda *step: steps.append(step))
    assert dict(index.walks.records()) == store.records
    assert rebuilt.chunk_count == 40
    assert rebuilt.unread == {}
    assert steps == [(n, 2 * SLAB_COUNT) for n in range(1, 2 * SLAB_COUNT + 1)]
    recovered = recover(index, store.device_set)
    assert [chunk for chunk, _ in chunks_of(recovered)] == [chunk_id(n) for n in range(1, 41)]
    assert recovered.next_stamp == 41


def test_batches_of_any_size_give_the_same_index(index: Index, monkeypatch) -> None:
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", 1)
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    rebuild_index(store.device_set, index, no_progress)
    assert dict(index.walks.records()) == store.records


@pytest.mark.parametrize("record_batch", [1, 100])
@pytest.mark.parametrize("newer_slab", [0, 1])
def test_the_newest_copy_of_a_chunk_wins(
    index: Index, monkeypatch, record_batch: int, newer_slab: int
) -> None:
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", record_batch)
    device_set = memory_device_set()
    for slab in (0, 1):
        write_slab_header(device_set, device=0, slab=slab)
        stamp = 9 if slab == newer_slab else 5
        write_chunk(device_set, chunk_id(1), extent_at(0, slab=slab), stamp=stamp)
    rebuild_index(device_set, index, no_progress)
    record = index.get(chunk_id(1))
    assert record is not None
    assert (record.stamp, record.extent) == (9, extent_at(0, slab=newer_slab))


@pytest.mark.parametrize("record_batch", [1, 100])
@pytest.mark.parametrize("newer_slab", [0, 1])
def test_a_stamp_that_was_given_out_again_after_a_crash_does_not_tie(
    index: Index, monkeypatch, record_batch: int, newer_slab: int
) -> None:
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", record_batch)
    device_set = memory_device_set()
    for slab in (0, 1):
        write_slab_header(device_set, device=0, slab=slab)
        epoch, stamp = (2, 7) if slab == newer_slab else (1, 8)
        write_chunk(device_set, chunk_id(1), extent_at(0, slab=slab), stamp=stamp, epoch=epoch)
    rebuild_index(device_set, index, no_progress)
    record = index.get(chunk_id(1))
    assert record is not None
    assert (record.epoch, record.extent) == (2, extent_at(0, slab=newer_slab))


def test_old_chunks_of_the_index_go_but_sequences_stay(index: Index) -> None:
    index.apply(
        IndexChange(
            puts=((chunk_id(99), record_at(extent_at(0))),),
            sequence_puts=((NAMESPACE_ID, "talk", SequenceRecord(layout_id=LAYOUT_ID)),),
        )
    )
    device_set = memory_device_set()
    assert rebuild_index(device_set, index, no_progress).chunk_count == 0
    assert index.meta() == meta()
    assert index.walks.sequences(NAMESPACE_ID) == ["talk"]


def test_damaged_headers_cost_only_their_own_chunks(index: Index) -> None:
    store = WrittenStore()
    for number in range(1, 11):
        store.write(number)
    lost = store.records.pop(chunk_id(4)).extent
    media(store.device_set, lost.device_index)[lost.offset] ^= 0xFF
    rebuild_index(store.device_set, index, no_progress)
    assert dict(index.walks.records()) == store.records


def test_unreadable_slabs_are_counted(index: Index, monkeypatch) -> None:
    store = WrittenStore()
    for number in range(1, 11):
        store.write(number)
    device = store.device_set.devices[0]

    def fail(buffers: object, offset: int) -> None:
        raise DeviceError(device.facts.name, "read", "medium error")

    monkeypatch.setattr(device, "readv", fail)
    rebuilt = rebuild_index(store.device_set, index, no_progress)
    assert rebuilt.unread == {"memory-0": Unread(slab_count=SLAB_COUNT)}
    assert rebuilt.chunk_count == 5
    assert {record.extent.device_index for _, record in index.walks.records()} == {1}


def test_an_unreadable_header_costs_one_chunk_and_is_counted(index: Index) -> None:
    store = WrittenStore()
    for number in range(1, 31):
        store.write(number)
    lost = store.records.pop(chunk_id(4)).extent
    devices = list(store.device_set.devices)
    name = devices[lost.device_index].facts.name
    devices[lost.device_index] = BadPlacesDevice(devices[lost.device_index], [lost.offset])
    store.device_set.devices = tuple(devices)
    rebuilt = rebuild_index(store.device_set, index, no_progress)
    assert dict(index.walks.records()) == store.records
    assert rebuilt.unread == {name: Unread(header_count=1)}


def test_a_rebuild_over_transfers_that_go_wrong_once_finds_every_chunk(index: Index) -> None:
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    devices = [OnceWrongDevice(device) for device in store.device_set.devices]
    for device in devices:
        device.is_wrong = True
    store.device_set.devices = tuple(devices)
    rebuild_index(store.device_set, index, no_progress)
    assert dict(index.walks.records()) == store.records


def test_an_interrupted_rebuild_leaves_an_incomplete_index(index: Index) -> None:
    store = WrittenStore()
    store.write(1)
    index.apply(IndexChange(meta=meta()))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild_index(store.device_set, index, stop)
    assert index.meta() is None


@pytest.mark.parametrize("record_batch", [10, 100])
def test_what_the_map_has_no_room_for_is_left_out_and_the_newest_stay(
    index: Index, monkeypatch: pytest.MonkeyPatch, record_batch: int
) -> None:
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", record_batch)
    monkeypatch.setattr(IndexUsage, "left_chunks", property(lambda usage: 15 - usage.chunk_count))
    rebuilt = rebuild_index(store.device_set, index, no_progress)
    assert (rebuilt.chunk_count, rebuilt.left_out_count) == (15, 25)
    found = dict(index.walks.records())
    assert found.items() <= store.records.items()
    if record_batch == 100:
        assert found.keys() == {chunk_id(number) for number in range(26, 41)}
    assert index.meta() == meta()


@pytest.mark.parametrize("record_batch", [10, 100])
def test_lengths_of_slices_were_not_counted_where_room_is_short(
    index: Index, monkeypatch: pytest.MonkeyPatch, record_batch: int
) -> None:
    """An encoded chunk takes as much as some others; the newest that fit stay."""
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number, is_encoded=number % 2 == 0)
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", record_batch)
    room = 15 * chunk_entries(0) + 15 * chunk_entries(1) + 1

    def left_chunks(usage: IndexUsage) -> int:
        lengths_count = usage.entry_count(Table.LENGTHS)
        return int(room - usage.chunk_count - lengths_count * (chunk_entries(1) - 1))

    monkeypatch.setattr(IndexUsage, "left_chunks", property(left_chunks))
    rebuilt = rebuild_index(store.device_set, index, no_progress)
    assert left_chunks(index.usage) >= 0
    assert rebuilt.chunk_count + rebuilt.left_out_count == 40
    if record_batch == 100:
        kept = {chunk_id(number) for number in range(11, 41)}
        assert {chunk for chunk, _ in index.walks.records()} == kept


def test_one_transaction_took_any_number_of_lengths(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = WrittenStore()
    for number in range(1, 31):
        store.write(number, is_encoded=True)
    # A slab has half of the chunks.
    monkeypatch.setattr(rebuild_module, "RECORD_BATCH", 30)
    sizes: list[tuple[int, int]] = []
    apply = Index.apply

    def counted(self: Index, change: IndexChange) -> None:
        sizes.append((len(change.puts), len(change.lengths)))
        apply(self, change)

    monkeypatch.setattr(Index, "apply", counted)
    assert rebuild_index(store.device_set, index, no_progress).chunk_count == 30
    assert sizes == [(15, 15), (15, 15), (0, 0), (0, 0)]


def test_a_map_that_is_full_all_the_same_ends_no_rebuild(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild_module, "RECORDS_UNDIVIDED_MAX", 1)
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    apply = Index.apply

    def apply_few(self: Index, change: IndexChange) -> None:
        if self.usage.chunk_count + len(change.puts) > 15:
            raise IndexFullError("full")
        apply(self, change)

    monkeypatch.setattr(Index, "apply", apply_few)
    rebuilt = rebuild_index(store.device_set, index, no_progress)
    assert (rebuilt.chunk_count, rebuilt.left_out_count) == (15, 25)
    assert dict(index.walks.records()).items() <= store.records.items()
    assert index.meta() == meta()
