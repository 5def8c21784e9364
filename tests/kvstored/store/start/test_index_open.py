"""From the index on media to the store's start, after every kind of stop.

Of the tests of older copies one fails when ``open_recovered`` does not look at the age of the
index (seen: the copy was served, without the chunk that was written since), and the other when
``begin_epoch`` writes to the devices before the index (seen: a start that was cut short between
both cost the sequences).
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstored.format.sequence_record import SequenceRecord
from kvstored.io.device import DeviceError
from kvstored.io.faults.calls import FailingCalls, Fuse
from kvstored.store.index.aside import UNFINISHED_FILE
from kvstored.store.index.index import DATA_FILE, Index, IndexChange
from kvstored.store.index.service import close_cleanly
from kvstored.store.index.snapshot import SNAPSHOT_FILE
from kvstored.store.index.usage import IndexUsage
from kvstored.store.space.superblock_copies import read_superblock
from kvstored.store.start import index_open
from kvstored.store.start.index_open import begin_epoch, open_recovered
from kvstored.store.start.recover import Recovered, recover
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    WrittenStore,
    chunk_id,
    chunks_of,
    extent_at,
    record_at,
)

COUNT = 40


@pytest.fixture
def store() -> WrittenStore:
    written = WrittenStore()
    for number in range(1, COUNT + 1):
        written.write(number)
    return written


def opened(path: Path, store: WrittenStore) -> tuple[Index, Recovered]:
    return open_recovered(path, MAP_BYTES, store.device_set, lambda done, total: None)


def stopped(path: Path, store: WrittenStore, use: Callable[[Recovered], None]) -> None:
    """Built, used and closed in order."""
    index, recovered = opened(path, store)
    use(recovered)
    close_cleanly(index, recovered.table, recovered.next_stamp)


def use_some(recovered: Recovered) -> None:
    recovered.table.touch([chunk_id(number).encode() for number in (7, 3)])


def refuse(*_: object) -> None:
    raise AssertionError("the index was walked")


def test_a_new_index_is_built_from_the_devices(tmp_path: Path, store: WrittenStore) -> None:
    index, recovered = opened(tmp_path / "index", store)
    assert [chunk for chunk, _ in chunks_of(recovered)] == [
        chunk_id(number) for number in range(1, COUNT + 1)
    ]
    assert recovered.next_stamp == COUNT + 1
    index.close()


def test_a_clean_stop_keeps_the_order_of_use_and_saves_the_walk(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path / "index", store, use_some)
    monkeypatch.setattr(index_open, "recover", refuse)
    index, recovered = opened(tmp_path / "index", store)
    others = [number for number in range(1, COUNT + 1) if number not in (3, 7)]
    order = [chunk_id(number) for number in (*others, 7, 3)]
    assert [chunk for chunk, _ in chunks_of(recovered)] == order
    assert recovered.dropped_count == 0
    walked = recover(index, store.device_set)
    assert dict(chunks_of(walked)) == dict(chunks_of(recovered))
    for device in (0, 1):
        assert recovered.allocator.used_bytes(device) == walked.allocator.used_bytes(device)
    # Uses are later than everything in the snapshot, and so are writes.
    assert recovered.next_stamp > walked.next_stamp
    assert recovered.table.clock == recovered.next_stamp
    index.close()


def test_a_clean_stop_keeps_the_order_of_what_was_used_together(
    tmp_path: Path, store: WrittenStore
) -> None:
    """What a sequence begins with goes last, also before anybody knows the sequence again."""
    together = [7, 3, 9, 5]

    def use(recovered: Recovered) -> None:
        identities = [chunk_id(number).encode() for number in together]
        recovered.table.touch(identities, together=True)
        recovered.table.touch(identities[:1])

    stopped(tmp_path / "index", store, use)
    index, recovered = opened(tmp_path / "index", store)
    last = [chunk for chunk, _ in chunks_of(recovered)][-len(together) :]
    assert last == [chunk_id(number) for number in reversed(together)]
    index.close()


def test_after_a_kill_the_order_is_that_of_the_writes(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path / "index", store, use_some)
    index, recovered = opened(tmp_path / "index", store)
    use_some(recovered)
    index.close()
    monkeypatch.setattr(index_open, "recover", refuse)
    index, recovered = opened(tmp_path / "index", store)
    assert [chunk for chunk, _ in chunks_of(recovered)] == [
        chunk_id(number) for number in range(1, COUNT + 1)
    ]
    index.close()


def test_quarantined_extents_stay_used_with_a_snapshot(tmp_path: Path, store: WrittenStore) -> None:
    record = store.records[chunk_id(4)]

    def quarantine(recovered: Recovered) -> None:
        recovered.table.remove(chunk_id(4))

    index, recovered = opened(tmp_path / "index", store)
    quarantine(recovered)
    index.apply(IndexChange(quarantines=((chunk_id(4), record),)))
    used_bytes = [recovered.allocator.used_bytes(device) for device in (0, 1)]
    close_cleanly(index, recovered.table, recovered.next_stamp)
    assert (tmp_path / "index" / SNAPSHOT_FILE).exists()
    index, recovered = opened(tmp_path / "index", store)
    assert len(recovered.table) == COUNT - 1
    assert [recovered.allocator.used_bytes(device) for device in (0, 1)] == used_bytes
    with pytest.raises(ValueError, match="overlaps"):
        recovered.allocator.occupy(record.extent)
    index.close()


def test_a_damaged_snapshot_falls_back_to_the_walk(
    tmp_path: Path, store: WrittenStore, caplog: pytest.LogCaptureFixture
) -> None:
    stopped(tmp_path / "index", store, use_some)
    data = bytearray((tmp_path / "index" / SNAPSHOT_FILE).read_bytes())
    data[-20] ^= 1
    (tmp_path / "index" / SNAPSHOT_FILE).write_bytes(data)
    index, recovered = opened(tmp_path / "index", store)
    assert "cannot be used" in caplog.text
    assert [chunk for chunk, _ in chunks_of(recovered)] == [
        chunk_id(number) for number in range(1, COUNT + 1)
    ]
    index.close()


def test_a_snapshot_that_contradicts_the_quarantine_is_not_used(
    tmp_path: Path, store: WrittenStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "index"
    index, recovered = opened(path, store)
    # A second claim to the extent of chunk 4, as only a fault could make it.
    index.apply(
        IndexChange(
            quarantines=((chunk_id(900), record_at(store.records[chunk_id(4)].extent, stamp=99)),)
        )
    )
    close_cleanly(index, recovered.table, recovered.next_stamp)
    index, recovered = opened(path, store)
    assert "contradicts itself" in caplog.text
    assert recovered.dropped_count == 1
    assert index.get(chunk_id(4)) is None
    index.close()


def test_an_unsound_index_is_set_aside_and_rebuilt(
    tmp_path: Path, store: WrittenStore, caplog: pytest.LogCaptureFixture
) -> None:
    index, _ = opened(tmp_path / "index", store)
    index.close()
    data = tmp_path / "index" / DATA_FILE
    data.write_bytes(b"\xff" * data.stat().st_size)
    index, recovered = opened(tmp_path / "index", store)
    assert "it is kept as" in caplog.text
    assert len(recovered.table) == COUNT
    index.close()


def test_an_index_whose_first_start_was_killed_is_made_again(
    tmp_path: Path, store: WrittenStore, caplog: pytest.LogCaptureFixture
) -> None:
    """Fails where ``open_for_service`` does not mark what it creates, or the mark stays."""
    path = tmp_path / "index"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_recovered(path, MAP_BYTES, store.device_set, die)
    (path / DATA_FILE).write_bytes(b"cut")
    index, recovered = opened(path, store)
    assert len(recovered.table) == COUNT
    index.close()
    assert "never finished" in caplog.text
    assert {found.name for found in tmp_path.iterdir()} == {"index"}
    assert not (path / UNFINISHED_FILE).exists()


def test_a_new_index_is_marked_before_its_first_byte(
    tmp_path: Path, store: WrittenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails where ``open_for_service`` marks what is there already."""

    def die(*_: object, **__: object) -> Index:
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "open", die)
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "index", store)
    assert [found.name for found in (tmp_path / "index").iterdir()] == [UNFINISHED_FILE]


def test_slabs_that_cannot_be_read_are_told(
    tmp_path: Path,
    store: WrittenStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    device = store.device_set.devices[0]

    def fail(buffers: object, offset: int) -> None:
        raise DeviceError(device.facts.name, "read", "medium error")

    monkeypatch.setattr(device, "readv", fail)
    index, recovered = opened(tmp_path / "index", store)
    assert "memory-0: 4 slabs and 0 extent headers could not be read" in caplog.text
    assert len(recovered.table) == COUNT // 2
    index.close()


def test_chunks_that_a_rebuild_has_no_room_for_are_told(
    tmp_path: Path,
    store: WrittenStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(IndexUsage, "left_chunks", COUNT - 3)
    index, recovered = opened(tmp_path / "index", store)
    assert "the index has no room for 3 chunks that were found" in caplog.text
    assert len(recovered.table) == COUNT - 3
    index.close()


def test_a_slab_that_changed_its_class_is_recovered(tmp_path: Path, store: WrittenStore) -> None:
    index, recovered = opened(tmp_path / "index", store)
    wide = extent_at(0, slab=3, size=32768)
    recovered.table.insert(chunk_id(800), wide)
    index.apply(IndexChange(puts=((chunk_id(800), record_at(wide, stamp=800)),)))
    close_cleanly(index, recovered.table, recovered.next_stamp)
    index, recovered = opened(tmp_path / "index", store)
    assert dict(chunks_of(recovered))[chunk_id(800)] == wide
    assert recovered.allocator.used_count(0, 3) == 1
    index.close()


SEQUENCE = IndexChange(sequence_puts=((NAMESPACE_ID, "talk", SequenceRecord(layout_id=LAYOUT_ID)),))


@pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "clean"])
def test_an_older_copy_is_kept_aside_and_rebuilt(
    tmp_path: Path, store: WrittenStore, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path, copy = tmp_path / "index", tmp_path / "copy"

    def stop(index: Index, recovered: Recovered) -> None:
        if is_clean:
            close_cleanly(index, recovered.table, recovered.next_stamp)
        else:
            index.close()

    index, recovered = opened(path, store)
    begin_epoch(index, store.device_set)
    stop(index, recovered)
    shutil.copytree(path, copy)
    index, recovered = opened(path, store)
    begin_epoch(index, store.device_set)
    index.apply(IndexChange(puts=((chunk_id(COUNT + 1), store.write(COUNT + 1)),)))
    index.close()
    shutil.rmtree(path)
    copy.rename(path)
    caplog.clear()
    index, recovered = opened(path, store)
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "older copy, of epoch 2 where its devices are in epoch 3;" in record.message
    assert f"it is kept as {path}.damaged-1" in record.message
    assert dict(index.walks.records()) == store.records
    assert chunk_id(COUNT + 1) in dict(chunks_of(recovered))
    kept = Index.open(tmp_path / "index.damaged-1", map_bytes=MAP_BYTES, readonly=True)
    assert kept.usage.chunk_count == COUNT
    kept.close()
    index.close()
    # What was rebuilt is of age.
    index, _ = opened(path, store)
    assert not (tmp_path / "index.damaged-2").exists()
    index.close()


def test_a_start_that_was_cut_short_leaves_no_older_index(
    tmp_path: Path, store: WrittenStore
) -> None:
    """Whichever write or flush of the superblocks is the last of two starts: the index is kept."""
    path, devices = tmp_path / "index", store.device_set.devices
    index, _ = opened(path, store)
    index.apply(SEQUENCE)
    index.close()
    for nth in range(1, 9):
        for _ in range(2):
            index = Index.open(path, map_bytes=MAP_BYTES)
            fuse = Fuse(nth)
            store.device_set.devices = tuple(FailingCalls(device, fuse) for device in devices)
            with pytest.raises(DeviceError):
                begin_epoch(index, store.device_set)
            index.close()
            store.device_set.devices = devices
            store.device_set.superblocks = tuple(map(read_superblock, devices))
            store.device_set.epoch = max(each.epoch for each in store.device_set.superblocks)
        index, _ = opened(path, store)
        assert index.walks.sequences(NAMESPACE_ID) == ["talk"], nth
        index.close()
