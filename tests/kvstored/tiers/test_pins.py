"""What a pin, a leased match, a match and a read say of chunks, wherever each of them lies."""

import threading
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice
from kvstored.store.index.failure import IndexFailure
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored_contract.board import SliceState
from kvstored_contract.reasons import Reason
from tests.support.memory_folder import memory_folder
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
from tests.support.waiting import PATIENCE_S, wait_until


class Place(Enum):
    """Where a chunk lies, and whether it can be read."""

    ONLY_DRAM_DEVICE_FAILED = "in DRAM, its device has failed"
    ONLY_DRAM_EVICTED = "in DRAM, evicted from its device"
    ONLY_DEVICE = "on its device"
    BOTH = "in DRAM and on its device"
    STAGED = "in DRAM, being written"
    FAILED_DEVICE = "on a device that has failed"
    BEING_FILLED = "in a frame that is being filled"
    QUARANTINED = "damaged on its device"
    DELETED = "deleted"
    NOWHERE = "nowhere"


READABLE = {
    Place.ONLY_DRAM_DEVICE_FAILED,
    Place.ONLY_DRAM_EVICTED,
    Place.ONLY_DEVICE,
    Place.BOTH,
    Place.STAGED,
}
OF_EACH = 3
NUMBERS = {
    place: [100 * index + each for each in range(OF_EACH)] for index, place in enumerate(Place)
}


class HeldWrites(PassingDevice):
    """Writes wait while the gate is closed; reads do not."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.gate = threading.Event()
        self.gate.set()

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        assert self.gate.wait(PATIENCE_S)
        super().writev(buffers, offset)


def chunks_of(*places: Place) -> list[ChunkId]:
    return [ChunkId(NAMESPACE, key(number)) for place in places for number in NUMBERS[place]]


def put_on(opened: StoreUnderTest, device_index: int, place: Place) -> None:
    """Stores the chunks of a place on one device; the other one gets chunks of no meaning."""
    for number in NUMBERS[place]:
        pair = [5000 + number, number]
        put_durable(opened, pair if device_index else pair[::-1])
        forget_dram(opened, [5000 + number])


@pytest.fixture(scope="module")
def scene() -> Iterator[StoreUnderTest]:
    """A store with three chunks in every place."""
    devices: list[HeldWrites] = []

    def wrap(device: Device) -> Device:
        devices.append(HeldWrites(device))
        return devices[-1]

    with memory_folder() as path, open_store(path, wrap=wrap, dram_bytes=4 * MIB) as opened:
        opened.fill(2)
        put_on(opened, 0, Place.ONLY_DRAM_DEVICE_FAILED)
        put_on(opened, 0, Place.FAILED_DEVICE)
        put_on(opened, 1, Place.ONLY_DRAM_EVICTED)
        put_on(opened, 1, Place.ONLY_DEVICE)
        put_on(opened, 1, Place.BOTH)
        put_on(opened, 1, Place.QUARANTINED)
        put_on(opened, 1, Place.DELETED)
        forget_dram(opened, NUMBERS[Place.FAILED_DEVICE] + NUMBERS[Place.ONLY_DEVICE])
        store = opened.store._store
        forget_dram(opened, NUMBERS[Place.QUARANTINED])
        for chunk in chunks_of(Place.QUARANTINED):
            record = store.index.get(chunk)
            assert record is not None
            store.quarantine(chunk, record)
        deleted = [key(number) for number in NUMBERS[Place.DELETED]]
        assert opened.store.delete(NAMESPACE, deleted).result(PATIENCE_S) == OF_EACH
        wait_until(lambda: store.find(chunks_of(Place.QUARANTINED)) == [None] * OF_EACH)
        evictions = store.evict(chunks_of(Place.ONLY_DRAM_EVICTED))
        assert [eviction.result(PATIENCE_S) for eviction in evictions] == [True] * OF_EACH
        store.failures.report(0, DeviceError("device0", "flush", "gone", sticky=True))
        devices[1].gate.clear()
        staged = opened.put(NUMBERS[Place.STAGED])
        for chunk in chunks_of(Place.BEING_FILLED):
            geometry = opened.store._dram._frames[chunks_of(Place.BOTH)[0]].geometry
            claim = opened.store._dram.claim(
                chunk,
                layout_id=LAYOUT.layout_id,
                geometry=geometry,
                class_bytes=LAYOUT.chunk_bytes() + 4096,
                deadline=0,
            )
            assert claim is not None
        yield opened
        devices[1].gate.set()
        for ticket in staged:
            assert ticket.durable is not None
            ticket.durable.result(PATIENCE_S)


def leased_match(opened: StoreUnderTest, keys: list[bytes]) -> int:
    """What the server answers: the matched prefix as far as it could be pinned."""
    matched = opened.store.match(NAMESPACE, keys)
    pinned = opened.store.pin(NAMESPACE, keys[:matched])
    opened.store.unpin(pinned)
    present = {chunk.key for chunk in pinned}
    return next((i for i, one in enumerate(keys[:matched]) if one not in present), matched)


@pytest.mark.parametrize("first", Place, ids=lambda place: place.name)
def test_pin_and_leased_match_ignored_what_only_dram_holds(
    scene: StoreUnderTest, first: Place
) -> None:
    """Bug: match said 2 and a read served 2, a pin and a leased match gave 1 and 0."""
    for places in product([first], Place, Place):
        numbers = [NUMBERS[place][position] for position, place in enumerate(places)]
        keys = [key(number) for number in numbers]
        is_readable = [place in READABLE for place in places]
        prefix = [*is_readable, False].index(False)
        pinned = scene.store.pin(NAMESPACE, keys)
        scene.store.unpin(pinned)
        answers = (
            scene.store.match(NAMESPACE, keys),
            leased_match(scene, keys),
            [one in {chunk.key for chunk in pinned} for one in keys],
        )
        assert answers == (prefix, prefix, is_readable), places
        board = new_board(3)
        assert scene.read(numbers, base=BASE, board=board).wait(PATIENCE_S)
        assert [
            bool((states == SliceState.RESIDENT).all()) for states in board.states
        ] == is_readable, places
    assert scene.store._store.pins.count == 0


@pytest.mark.parametrize("is_failed", [True, False], ids=["failed", "evicted"])
def test_a_pinned_chunk_that_only_dram_has_stays_there(tmp_path: Path, is_failed: bool) -> None:
    with open_store(tmp_path, slabs_per_device=16, dram_bytes=MIB) as opened:
        opened.fill(2)
        put_durable(opened, [0, 1])
        pinned: tuple[ChunkId, ...] = ()
        store = opened.store._store
        if is_failed:
            # Pinned before: that its device fails meanwhile makes no difference.
            pinned = opened.store.pin(NAMESPACE, [key(0)])
            store.failures.report(0, DeviceError("device0", "flush", "gone", sticky=True))
        else:
            (eviction,) = store.evict([ChunkId(NAMESPACE, key(0))])
            assert eviction.result(PATIENCE_S)
            pinned = opened.store.pin(NAMESPACE, [key(0)])
        assert len(pinned) == 1
        for number in range(10, 100):
            put_durable(opened, [number])
        assert not opened.store._dram.contains(ChunkId(NAMESPACE, key(1)))
        assert opened.store.match(NAMESPACE, [key(0)]) == 1
        assert opened.read([0], base=BASE, board=(board := new_board(1))).wait(PATIENCE_S)
        assert (board.states == SliceState.RESIDENT).all()
        opened.store.unpin(pinned)
        for number in range(100, 200):
            put_durable(opened, [number])
        assert opened.store.match(NAMESPACE, [key(0)]) == 0


def test_a_slab_of_dram_with_a_kept_chunk_is_not_emptied(tmp_path: Path) -> None:
    with open_store(tmp_path, slabs_per_device=16, dram_bytes=2 * MIB) as opened:
        dram = opened.store._dram
        opened.fill(1)
        for number in range(2 * (MIB // (LAYOUT.chunk_bytes() + 4096))):
            put_durable(opened, [number])
        kept = ChunkId(NAMESPACE, key(0))
        (eviction,) = opened.store._store.evict([kept])
        assert eviction.result(PATIENCE_S)
        pinned = opened.store.pin(NAMESPACE, [key(0)])
        geometry = dram._frames[kept].geometry
        for number in (1000, 1001):
            claim = dram.claim(
                ChunkId(NAMESPACE, key(number)),
                layout_id=bytes(32),
                geometry=geometry,
                class_bytes=MIB,
                deadline=0,
            )
            assert (claim is not None) == (number == 1000)
            assert dram.contains(kept)
        opened.store.unpin(pinned)


def test_a_put_of_the_same_key_dropped_what_a_pin_must_keep(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        chunk = ChunkId(NAMESPACE, key(1))
        assert [each.result(PATIENCE_S) for each in opened.store._store.evict([chunk])] == [True]
        frame = opened.store._dram._frames[chunk]
        pinned = opened.store.pin(NAMESPACE, [key(1)])
        (ticket,) = opened.put([1])
        assert ticket.outcome is PutOutcome.EXISTED
        assert ticket.durable is not None
        assert ticket.durable.result(0) is Reason.DEADLINE
        assert opened.store._dram._frames[chunk] is frame
        opened.store.unpin(pinned)
        put_durable(opened, [1])
        assert opened.store._dram._frames[chunk] is not frame


def test_a_key_named_twice_kept_a_pin_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: of one that was deleted between the looks nothing was answered, and a pin stayed."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        monkeypatch.setattr(opened.store.read_path, "are_readable", lambda _: [True, False])
        pinned = opened.store.pin(NAMESPACE, [key(1), key(1)])
        opened.store.unpin(pinned)
        assert opened.store._store.pins.count == 0


def test_a_pin_whose_look_failed_stayed_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the caller saw an error and knew of nothing to give back."""

    def fail(_: Sequence[ChunkId]) -> list[bool]:
        raise IndexFailure("unreadable")

    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        monkeypatch.setattr(opened.store.read_path, "are_readable", fail)
        with pytest.raises(IndexFailure):
            opened.store.pin(NAMESPACE, [key(1)])
        assert opened.store._store.pins.count == 0
