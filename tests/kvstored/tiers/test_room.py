"""Who has to go when a tier is full."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.io.device import Device, DeviceError
from kvstored.store.index.usage import IndexUsage
from kvstored.store.write import extents
from kvstored.tiers.chunks import nvme_room, nvme_victims
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.kvstored.tiers.hints.test_hints import hint
from tests.support.devices import FailingDevice, GatedDevice, Wrapping
from tests.support.stores import (
    BASE,
    LAYOUT,
    MIB,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import SOON_S, wait_until

PER_SLAB = (MIB - 4096) // (LAYOUT.chunk_bytes() + HEADER_BYTES)

WIDE = StateLayout(
    model="wide", dtype="float32", layers=(LayerState(StateKind.KV, 2048),) * 8, chunk_tokens=16
)
"""Of another size class."""


def put_wide(opened: StoreUnderTest, number: int) -> None:
    """Stores a chunk of the other class durably."""
    (ticket,) = opened.put([number], layout=WIDE)
    assert ticket.outcome is PutOutcome.STORED
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED


@contextmanager
def full_store_with_a_failed_device(path: Path) -> Iterator[StoreUnderTest]:
    """Two devices full of chunks, the first of which cannot be flushed any more."""
    devices = Wrapping(FailingDevice)
    with open_store(path, wrap=devices) as opened:
        opened.fill(2)
        for number in range(0, PER_SLAB * 8, 2):
            put_durable(opened, [number, number + 1])
        devices[0].broken.add("flush")
        yield opened


def test_full_devices_evict_the_least_recently_used(opened: StoreUnderTest) -> None:
    capacity = PER_SLAB * 8
    numbers = list(range(capacity + 20))
    opened.fill(1)
    for number in numbers[:capacity]:
        put_durable(opened, [number])
    counts = opened.store._promoter._reads

    def is_counted(uses: int) -> bool:
        return counts.count(ChunkId(NAMESPACE, key(0))) == uses

    for uses in (1, 2):
        forget_dram(opened, [0])
        assert opened.read([0], base=BASE, board=new_board(1)).wait()
        # A stream counts behind its end.
        wait_until(partial(is_counted, uses))
    for number in numbers[capacity:]:
        put_durable(opened, [number])
    stats = opened.stats()
    assert stats.counters["evicted_chunks"] >= 20
    assert opened.store.match(NAMESPACE, [key(0)]) == 1
    assert opened.store.match(NAMESPACE, [key(1)]) == 0
    assert opened.store.match(NAMESPACE, [key(numbers[-1])]) == 1


def test_another_size_class_takes_over_the_oldest_slab(opened: StoreUnderTest) -> None:
    opened.fill(8)
    numbers = list(range(PER_SLAB * 8))
    for number in numbers:
        put_durable(opened, [number])
    slabs = {
        status.chunk.key: (status.device_index, (status.offset - MIB) // MIB)
        for status in opened.store.inspection.list_chunks("", len(numbers))[0]
    }
    put_wide(opened, 1000)
    forget_dram(opened, numbers)
    gone = {number for number in numbers if not opened.store.match(NAMESPACE, [key(number)])}
    assert gone == {number for number in numbers if slabs[key(number)] == slabs[key(0)]}


def fill_but_one_slab(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, *, oldest_count: int
) -> list[int]:
    """The chunks of seven of eight slabs; so few of the oldest of all are looked at from now on."""
    monkeypatch.setattr(nvme_victims, "OLDEST_LOOKED_AT", oldest_count)
    opened.fill(8)
    numbers = list(range(PER_SLAB * 7))
    for number in numbers:
        put_durable(opened, [number])
    return numbers


def test_a_slab_with_some_old_chunks_took_those_along_that_were_just_used(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* conversations lost their token ids, whose chunks lie between older ones."""
    numbers = fill_but_one_slab(opened, monkeypatch, oldest_count=16)
    first = 10_000
    while not opened.stats().counters.get("evicted_chunks"):
        first += 1
        put_wide(opened, first)
    left = [number for number in numbers if opened.store.match(NAMESPACE, [key(number)])]
    used = left[::2]
    for number in range(20_000, 20_006):
        for one in used:
            assert opened.read([one], base=BASE, board=new_board(1)).wait()
        put_wide(opened, number)
        forget_dram(opened, [number])
        assert opened.store.match(NAMESPACE, [key(number)]) == 1
    forget_dram(opened, used)
    assert [opened.store.match(NAMESPACE, [key(number)]) for number in used] == [1] * len(used)


def test_a_slab_whose_chunks_once_waited_was_kept_for_ever(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* what was seen of a slab while requests waited for its chunks counted for good."""
    numbers = fill_but_one_slab(opened, monkeypatch, oldest_count=4)
    waiting = [number for number in numbers if number % 4]
    hint(opened, {"waiting": waiting})
    for number in range(10_000, 10_006):
        put_wide(opened, number)
    before = [opened.store.match(NAMESPACE, [key(number)]) for number in numbers]
    hint(opened, {}, ("waiting",), versions=(2, 1))
    for number in range(20_000, 20_020):
        put_wide(opened, number)
    forget_dram(opened, numbers)
    after = [opened.store.match(NAMESPACE, [key(number)]) for number in numbers]
    assert sum(after) <= sum(before) - PER_SLAB


def test_pinned_chunk_outlives_its_deletion(opened: StoreUnderTest) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    pinned = opened.store.pin(NAMESPACE, [key(0), key(5)])
    assert [chunk.key for chunk in pinned] == [key(0)]
    assert opened.store.delete(NAMESPACE, [key(0)]).result() == 1
    assert sum(device.used_bytes for device in opened.stats().devices) > 0
    opened.store.unpin(pinned)
    assert sum(device.used_bytes for device in opened.stats().devices) == 0


def test_dram_full_of_unwritten_chunks_rejects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "OPENING_WAIT_S", SOON_S)
    gates: list[GatedDevice] = []

    def wrap(device: Device) -> Device:
        gates.append(GatedDevice(device))
        return gates[-1]

    with open_store(tmp_path, wrap=wrap, dram_bytes=MIB) as opened:
        opened.fill(40)
        tickets = opened.put(list(range(40)), timeout_s=0.05)
        for gate in gates:
            gate.gate.set()
        outcomes = [ticket.outcome for ticket in tickets]
        stored = outcomes.count(PutOutcome.STORED)
        assert 20 < stored < 40
        assert outcomes == [PutOutcome.STORED] * stored + [PutOutcome.REJECTED] * (40 - stored)
        assert {ticket.reason for ticket in tickets[stored:]} == {Reason.DRAM_FULL}


def test_pinned_chunks_are_passed_over_by_eviction(opened: StoreUnderTest) -> None:
    numbers = list(range(PER_SLAB * 8))
    opened.fill(1)
    for number in numbers:
        put_durable(opened, [number])
    pinned = opened.store.pin(NAMESPACE, [key(number) for number in numbers])
    rejected = opened.put([5000])[0]
    assert (rejected.outcome, rejected.reason) == (PutOutcome.REJECTED, Reason.STORE_FULL)
    opened.store.unpin(pinned[-1:])
    put_durable(opened, [5000])
    forget_dram(opened, numbers)
    assert opened.store.match(NAMESPACE, [key(numbers[-1])]) == 0
    assert opened.store.match(NAMESPACE, [key(number) for number in numbers]) == len(numbers) - 1


def test_hits_in_dram_keep_a_chunk_on_the_devices(opened: StoreUnderTest) -> None:
    capacity = PER_SLAB * 8
    opened.fill(1)
    for number in range(capacity):
        put_durable(opened, [number])
        assert opened.read([0], base=BASE, board=new_board(1)).wait()
    put_durable(opened, [5000])
    forget_dram(opened, [0, 1])
    assert opened.store.match(NAMESPACE, [key(0)]) == 1
    assert opened.store.match(NAMESPACE, [key(1)]) == 0


def test_chunks_of_a_failed_device_do_not_stand_in_the_way_of_eviction(tmp_path: Path) -> None:
    with full_store_with_a_failed_device(tmp_path) as opened:
        (ticket,) = opened.put([9000])
        assert ticket.durable is not None
        ticket.durable.result()
        for number in range(5000, 5000 + PER_SLAB):
            put_durable(opened, [number])
        assert opened.store.match(NAMESPACE, [key(5000 + PER_SLAB - 1)]) == 1


def test_without_a_device_a_put_walked_over_all_chunks(tmp_path: Path) -> None:
    """Bug: each left the table, and none of them could make room. The put waited for all."""
    with full_store_with_a_failed_device(tmp_path) as opened:
        store = opened.store._store
        for number in range(2):
            store.failures.report(number, DeviceError("device", "flush", "gone", sticky=True))
        room = opened.store._room
        count = room.chunk_count
        (ticket,) = opened.put([9000])
        assert ticket.reason is Reason.STORE_FULL
        assert room.chunk_count == count


def test_slabs_of_a_failed_device_were_emptied_in_vain(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: what deletions had left there counted as room, and its chunks left the index."""
    monkeypatch.setattr(nvme_victims, "OLDEST_LOOKED_AT", 4)
    opened.fill(8)
    for number in range(0, PER_SLAB * 8, 2):
        put_durable(opened, [number, number + 1])
    store = opened.store._store
    chunks, _ = opened.store.inspection.list_chunks("", PER_SLAB * 8)
    there = [each.chunk for each in chunks if each.device_index == 0]
    assert opened.store.delete(NAMESPACE, [each.key for each in there[::2]]).result() > PER_SLAB
    store.failures.report(0, DeviceError("device0", "flush", "gone", sticky=True))
    for number in range(1000, 1004):
        put_wide(opened, number)
    assert None not in map(store.index.get, there[1::2])


def test_slab_with_a_pinned_chunk_is_not_taken_over(opened: StoreUnderTest) -> None:
    opened.fill(8)
    for number in range(PER_SLAB * 8):
        put_durable(opened, [number])
    pinned = opened.store.pin(NAMESPACE, [key(0)])
    put_wide(opened, 1000)
    forget_dram(opened, [0])
    assert opened.store.match(NAMESPACE, [key(0)]) == 1
    opened.store.unpin(pinned)


def test_hints_left_no_room_for_another_size_class(opened: StoreUnderTest) -> None:
    """Bug: with a waiting chunk in every slab nothing could go, and the put found the store full,
    though hints pin nothing."""
    opened.fill(8)
    for number in range(PER_SLAB * 8):
        put_durable(opened, [number])
    hint(opened, {"a": list(range(0, PER_SLAB * 8, 3))})
    put_wide(opened, 1000)


def test_a_slab_with_something_in_quarantine_is_not_emptied_in_vain(
    opened: StoreUnderTest,
) -> None:
    opened.fill(8)
    for number in range(PER_SLAB * 8):
        put_durable(opened, [number])
    store = opened.store._store
    record = store.index.get(ChunkId(NAMESPACE, key(0)))
    assert record is not None
    store.quarantine(ChunkId(NAMESPACE, key(0)), record)
    wait_until(lambda: store.pending(ChunkId(NAMESPACE, key(0))) is None)
    (ticket,) = opened.put([1000], layout=WIDE)
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED
    assert opened.stats().counters["evicted_chunks"] == PER_SLAB
    found = store.index.get(ChunkId(NAMESPACE, key(1000)))
    assert found is not None
    extent = found.extent
    assert extent.device_index == record.extent.device_index
    slabs = {store.extents.allocator.geometry.slab_index(one) for one in (extent, record.extent)}
    assert len(slabs) == 2


def test_no_slab_that_can_become_empty(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search ends after some slabs, and the put finds no room."""
    monkeypatch.setattr(nvme_victims, "SLABS_LOOKED_AT_MAX", 2)
    opened.fill(8)
    for number in range(PER_SLAB * 8):
        put_durable(opened, [number])
    slabs: dict[tuple[int, int], bytes] = {}
    for status in opened.store.inspection.list_chunks("", PER_SLAB * 8)[0]:
        slab = (status.offset - 1024 * 1024) // MIB
        slabs[status.device_index, slab] = status.chunk.key
    pinned = opened.store.pin(NAMESPACE, list(slabs.values()))
    (ticket,) = opened.put([1000], layout=WIDE)
    assert ticket.reason is Reason.STORE_FULL
    assert opened.stats().counters.get("evicted_chunks", 0) == 0
    opened.store.unpin(pinned)


def test_invisible_chunks_in_front_of_all_others_leave_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvme_victims, "VICTIMS_LOOKED_AT", (2, 4))
    with full_store_with_a_failed_device(tmp_path) as opened:
        ticket = opened.put([9000])[0]
        assert ticket.durable is not None
        ticket.durable.result()
        forget_dram(opened, [0, 1])
        assert opened.store.match(NAMESPACE, [key(0)]) == 0
        for number in range(5000, 5020):
            put_durable(opened, [number])
        assert opened.store.match(NAMESPACE, [key(5019)]) == 1


def test_chunks_of_a_failed_device_are_not_matched(tmp_path: Path) -> None:
    broken: list[FailingDevice] = []

    def wrap(device: Device) -> Device:
        broken.append(FailingDevice(device))
        return broken[-1]

    with open_store(tmp_path, wrap=wrap) as opened:
        opened.fill(2)
        put_durable(opened, [0, 1])
        broken[0].broken.add("flush")
        ticket = opened.put([2])[0]
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.DEVICE_FAILED
        forget_dram(opened, [0, 1])
        assert opened.store.match(NAMESPACE, [key(0)]) == 0
        assert opened.store.match(NAMESPACE, [key(1)]) == 1


@pytest.mark.parametrize(
    ("excess", "unused_bytes", "evicted"),
    [(1, 64 * MIB, 16), (30, 64 * MIB, 30), (99, 64 * MIB, 50), (99, MIB, 32), (99, 0, 16)],
)
def test_an_index_with_many_chunks_too_many_evicts_many_at_once(
    opened: StoreUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    excess: int,
    unused_bytes: int,
    evicted: int,
) -> None:
    monkeypatch.setattr(nvme_room, "ROUNDS_MAX", 2)
    monkeypatch.setattr(nvme_victims, "INDEX_VICTIMS_MAX", 50)
    monkeypatch.setattr(nvme_victims, "VICTIMS_LOOKED_AT", (20, 60))
    opened.fill(1)
    for number in range(PER_SLAB * 8):
        put_durable(opened, [number])
    chunk_count = PER_SLAB * 8
    chunks_max = chunk_count - excess

    def left_chunks(usage: IndexUsage) -> int:
        return chunks_max + 1 - usage.chunk_count

    monkeypatch.setattr(IndexUsage, "left_chunks", property(left_chunks))
    monkeypatch.setattr(IndexUsage, "unused_bytes", unused_bytes)
    # One round, and then there is room, or it is not asked any more.
    shorts = iter((True, True, True))
    monkeypatch.setattr(IndexUsage, "is_short", property(lambda _: next(shorts, False)))
    put_durable(opened, [5000])
    assert opened.stats().counters["evicted_for_index_chunks"] == evicted
