"""The scrub over devices in memory: it finds all damage, and harms nothing that is sound.

Fails, each seen in a test of its own, when

* ``ScrubPass._check_chunk`` does not quarantine (``quarantined_chunks`` is missing), does not
  read damage twice (six sound chunks are quarantined for transfers that went wrong once), or does
  not look for the chunk again (a deleted one counts as damaged);
* ``_verdict`` finds everything sound (nothing is found), or does not set ``errors_in_a_row`` back
  (25 of 32 chunks unread for 16 bad places);
* ``READS_MAX`` is 1 (4 superblocks and 2 slab headers reported for transfers that went wrong once);
* ``_look_at`` does not pin (the extent of a chunk that is being read is free: ``0 == 36864``);
* ``_is_given_up`` ignores errors in a row (23 errors instead of 8 of a device that is gone);
* ``_record_of`` does not ask ``_is_gone`` (5 deleted chunks are lost index entries), or that does
  not ask for deletions under way (1 of these);
* ``_check_slab_header`` does not look at the table again (a slab that was emptied is reported);
* ``ScrubDevice`` submits without ``background`` (``Foreground.READ``) or tells nobody of its
  errors (no ``device_errors``); ``Pacer.wait`` sleeps (closing never ends);
* ``Scrub._run`` does not catch faults of a pass (there is no second one);
* ``ChunkColumns.chunks_in_rows`` takes rows without a chunk (775 chunks instead of 517).
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvstored.format.geometry import HEADER_BYTES, Extent
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.format.superblock import DATA_OFFSET
from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import Background, IoRequest, Operation
from kvstored.io.passing import PassingDevice
from kvstored.store.index.entry import Table
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.status import ChunkStatus, ScrubStatus
from kvstored.tiers.policy.shares import TierShares
from kvstored.tiers.policy.table_lru import TableLru
from kvstored.tiers.scrub.scrub_pace import ROWS_PER_LOOK, looks
from kvstored_contract.board import SliceState
from tests.support.devices import OnceWrongDevice, Wrapping
from tests.support.raw_index import raw_write
from tests.support.scrubs import (
    NUMBERS,
    UNLIMITED,
    counters,
    findings,
    flip,
    one_pass,
    place,
    quarantined,
    scrubbing,
    stored,
)
from tests.support.stores import (
    BASE,
    NAMESPACE,
    StoreUnderTest,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import PATIENCE_S, wait_until


def test_a_sound_store_is_read_whole_and_left_alone(opened: StoreUnderTest) -> None:
    payload = stored(opened, NUMBERS)
    before = [device.media.copy() for device in opened.devices]
    found = one_pass(opened)
    assert findings(found) == {}
    assert (found["scrub_passes"], found["scrub_chunks"]) == (1, len(NUMBERS))
    # The header of a chunk is read alone and with its slices.
    slabs = {(status.device_index, status.offset >> 20) for status in map_places(opened)}
    pages = 2 * len(opened.devices) + len(slabs) + 2 * len(NUMBERS)
    assert found["scrub_bytes"] == len(payload) + 4096 * pages
    for device, media in zip(opened.devices, before, strict=True):
        assert (device.media == media).all()
    assert opened.store.match(NAMESPACE, [key(number) for number in NUMBERS]) == len(NUMBERS)


def map_places(opened: StoreUnderTest) -> list[ChunkStatus]:
    return opened.store.inspection.list_chunks("", 1000)[0]


@pytest.mark.parametrize(
    "inside",
    [0, 20, 300, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 3 * 8192, HEADER_BYTES + 32767],
)
def test_damage_anywhere_in_a_chunk_is_found_without_any_reader(
    opened: StoreUnderTest, inside: int
) -> None:
    payload = stored(opened, NUMBERS)
    for number in (1, 4):
        flip(opened, number, inside)
    found = one_pass(opened)
    assert findings(found) == {"scrub_damaged_chunks": 2, "quarantined_chunks": 2}
    assert found["scrub_chunks"] == len(NUMBERS)
    wait_until(lambda: quarantined(opened) == {key(1), key(4)})
    board = new_board(len(NUMBERS))
    assert opened.read(NUMBERS, base=BASE, board=board).wait()
    size = len(payload) // len(NUMBERS)
    for number in NUMBERS:
        state = SliceState.MISSING if number in (1, 4) else SliceState.RESIDENT
        assert (board.states[number] == state).all()
        if state is SliceState.RESIDENT:
            start = number * size
            got = bytes(opened.arena[BASE + start : BASE + start + size])
            assert got == payload[start : start + size]
    again = one_pass(opened)
    assert (again["scrub_chunks"], again["quarantined_chunks"]) == (2 * len(NUMBERS) - 2, 2)


def test_a_stale_chunk_is_found(opened: StoreUnderTest) -> None:
    """All of its checksums are right; only the index knows that it is another one."""
    stored(opened, NUMBERS)
    source, target = place(opened, 0), place(opened, 2)
    assert source.device_index == target.device_index
    media = opened.devices[source.device_index].media
    length = source.extent_bytes
    media[target.offset :][:length] = media[source.offset :][:length]
    assert findings(one_pass(opened)) == {"scrub_damaged_chunks": 1, "quarantined_chunks": 1}
    wait_until(lambda: quarantined(opened) == {key(2)})


def test_transfers_that_go_wrong_once_are_no_damage(tmp_path: Path) -> None:
    devices = Wrapping(OnceWrongDevice)
    with open_store(tmp_path, wrap=devices) as opened:
        stored(opened, NUMBERS)
        for device in devices:
            device.is_wrong = True
            # The page of a header is wrong once, and not again with the slices behind it.
            device.seen = {(status.offset, 36864) for status in map_places(opened)}
        assert findings(one_pass(opened)) == {"unconfirmed_chunks": len(NUMBERS)}


def test_damaged_superblock_copies_are_reported(
    opened: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    stored(opened, NUMBERS)
    opened.devices[0].media[-4096 + 50] ^= 1
    opened.devices[1].media[:4096] = opened.devices[0].media[:4096]
    assert findings(one_pass(opened)) == {"scrub_damaged_superblocks": 2}
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    last = opened.devices[0].facts.capacity_bytes - 4096
    assert lines == [
        f"the superblock copy at byte {offset} of {name} is damaged; the next start rewrites it"
        for offset, name in [(last, "device0"), (0, "device1")]
    ]


def test_a_damaged_slab_header_is_reported(
    opened: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    stored(opened, NUMBERS)
    opened.devices[1].media[DATA_OFFSET + 40] ^= 1
    assert findings(one_pass(opened)) == {"scrub_damaged_slab_headers": 1}
    assert "the header of slab 0 of device1 is damaged" in caplog.text
    assert opened.store.match(NAMESPACE, [key(number) for number in NUMBERS]) == len(NUMBERS)


def test_a_slab_of_a_class_that_is_used_anew_meanwhile_is_no_damage(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(opened, NUMBERS)
    told = iter([12345, 0])
    room = opened.store.put_path._stager._room
    monkeypatch.setattr(room, "class_bytes_in_slab", lambda *_: next(told, 0))
    assert findings(one_pass(opened)) == {}


def test_a_damaged_index_entry_is_reported_until_a_put_mends_it(
    opened: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    stored(opened, NUMBERS)
    index = opened.store._store.index
    identity = ChunkId(NAMESPACE, key(3)).encode()
    with raw_write(index, Table.CHUNKS) as transaction:
        value = bytearray(transaction.get(identity) or b"")
        value[20] ^= 1
        transaction.put(identity, bytes(value))
    found = one_pass(opened)
    assert findings(found) == {"scrub_lost_records": 1}
    assert found["scrub_chunks"] == len(NUMBERS) - 1
    assert f"the index entry of chunk {key(3).hex()} is damaged; it is a miss" in caplog.text
    put_durable(opened, [3])
    assert findings(one_pass(opened)) == {"scrub_lost_records": 1}


class HoldingDevice(PassingDevice):
    """Reads of more than a page wait for ``gate``, once it is set up; each is announced."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate: threading.Event | None = None
        self.started = threading.Semaphore(0)

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        if self.gate is not None and sum(map(len, buffers)) > HEADER_BYTES:
            self.started.release()
            self.gate.wait(PATIENCE_S)
        super().readv(buffers, offset)


def test_a_chunk_that_is_deleted_while_it_is_read_keeps_its_extent_until_then(
    tmp_path: Path,
) -> None:
    devices = Wrapping(HoldingDevice)
    with open_store(tmp_path, device_count=1, wrap=devices) as opened:
        stored(opened, [0])
        (device,) = devices
        device.gate = threading.Event()
        used_bytes = opened.store._store.extents.used_bytes(0)
        with scrubbing(opened) as scrub:
            assert device.started.acquire(timeout=PATIENCE_S)
            assert scrub.status() == ScrubStatus(progress=1.0, ended_ms=0)
            assert opened.store.delete(NAMESPACE, [key(0)]).result() == 1
            assert opened.store._store.extents.used_bytes(0) == used_bytes > 0
            # Whatever is there now: the chunk is nobody's any more.
            flip_at = DATA_OFFSET + SLAB_HEADER_BYTES + HEADER_BYTES
            opened.devices[0].media[flip_at] ^= 1
            device.gate.set()
            wait_until(lambda: counters(opened).get("scrub_passes") == 1)
        assert findings(counters(opened)) == {}
        assert opened.store._store.extents.used_bytes(0) == 0


def test_chunks_that_are_gone_when_their_turn_comes_are_left_out(tmp_path: Path) -> None:
    devices = Wrapping(HoldingDevice)
    with open_store(tmp_path, device_count=1, wrap=devices) as opened:
        stored(opened, NUMBERS)
        (device,) = devices
        device.gate = threading.Event()
        with scrubbing(opened):
            assert device.started.acquire(timeout=PATIENCE_S)
            deleted = opened.store.delete(NAMESPACE, [key(number) for number in NUMBERS])
            assert deleted.result() == len(NUMBERS)
            device.gate.set()
            wait_until(lambda: counters(opened).get("scrub_passes") == 1)
        assert findings(counters(opened)) == {}
        assert counters(opened)["scrub_chunks"] == 1


def test_a_chunk_that_is_being_deleted_is_not_reported(opened: StoreUnderTest) -> None:
    stored(opened, NUMBERS)
    store = opened.store._store
    store._deleting[ChunkId(NAMESPACE, key(2))] = None  # type: ignore[assignment]
    try:
        found = one_pass(opened)
    finally:
        store._deleting.clear()
    assert findings(found) == {}
    assert found["scrub_chunks"] == len(NUMBERS) - 1


@pytest.mark.parametrize(("bytes_per_s", "start_delay_s"), [(1, 0.0), (UNLIMITED, 1e6)])
def test_closing_does_not_wait_for_a_turn(
    opened: StoreUnderTest, bytes_per_s: int, start_delay_s: float
) -> None:
    """The next request would begin in 18 hours, the first pass in 11 days."""
    stored(opened, NUMBERS)
    with scrubbing(opened, bytes_per_s=bytes_per_s, start_delay_s=start_delay_s):
        if not start_delay_s:
            wait_until(lambda: counters(opened).get("scrub_bytes") == 4096)
    assert "scrub_passes" not in counters(opened)


def test_every_read_goes_behind_those_that_somebody_waits_for(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(opened, NUMBERS)
    submit, seen = opened.store._promoter._loader._engine.submit, []

    def record(request: IoRequest) -> None:
        seen.append(request)
        submit(request)

    monkeypatch.setattr(opened.store._promoter._loader._engine, "submit", record)
    one_pass(opened)
    assert {request.traffic for request in seen} == {Background.SCRUB}
    assert {request.operation for request in seen} == {Operation.READ}


def test_the_scrub_only_reads(opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("kvstored.tiers.scrub.scrub.ScrubPass.run", lambda one, _: seen.append(one))
    one_pass(opened)
    device = seen[0]._devices[1]
    inner = opened.store._store.device_set.devices[1]
    assert device.facts == inner.facts
    assert device.facts.name == "device1"
    assert device.kernel_file() is None
    with pytest.raises(DeviceError, match="only reads"):
        device.writev([], 0)
    with pytest.raises(DeviceError, match="only reads"):
        device.flush()
    device.close()


def test_a_store_without_limits_has_no_scrub(opened: StoreUnderTest) -> None:
    assert "kvstored-scrub" not in {thread.name for thread in threading.enumerate()}
    assert opened.stats().scrub == ScrubStatus()


def test_looks_show_every_chunk_of_the_table_once() -> None:
    slab_bytes = 16 * 1024 * 1024
    table = ChunkTable(SlabGeometry(slab_bytes, (1,), 0, 4096))
    room = NvmeRoom(table=table, shares=TierShares.undivided(TableLru(table)), counters=None)  # type: ignore[arg-type]
    chunks = [ChunkId(NAMESPACE, key(number)) for number in range(3 * ROWS_PER_LOOK + 7)]
    assert (room.row_end, room.chunk_count, room.class_bytes_in_slab(0, 0)) == (0, 0, 0)
    for number, chunk in enumerate(chunks):
        room.stored(chunk, Extent(0, 4096 + number * 8192, 8192))
    gone = chunks[ROWS_PER_LOOK : 2 * ROWS_PER_LOOK] + chunks[-2:]
    for chunk in gone:
        room.removed(chunk)
    seen = [
        chunk for start, end in looks(room.row_end, 2) for chunk in room.chunks_in_rows(start, end)
    ]
    assert len(seen) == room.chunk_count
    assert set(seen) == set(chunks) - set(gone)
    assert room.class_bytes_in_slab(0, 0) == 8192
