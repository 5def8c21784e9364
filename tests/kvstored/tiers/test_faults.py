"""Damage, failing devices and a failing index: misses, and nothing leaked."""

from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from kvstored.format.geometry import HEADER_BYTES, Extent
from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice
from kvstored.store.index.index import IndexFailure
from kvstored.store.read.placement import PlacementError
from kvstored.store.read.plan import Order
from kvstored.store.write.chunk_store import DeletionError
from kvstored.store.write.writer import SealedChunk
from kvstored.tiers.chunks.requests import LayoutRefusedError, PutOutcome
from kvstored_contract.board import SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.devices import (
    FailingDevice,
    GatedDevice,
    HeaderRefusingDevice,
    Wrapping,
)
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


@pytest.mark.parametrize("part", ["header", "slice"])
@pytest.mark.parametrize("order", [Order.TAIL_FIRST, Order.LAYER_FIRST])
@pytest.mark.parametrize("takes_transfers", [False, True])
def test_damaged_chunk_is_a_miss_and_quarantined(
    opened: StoreUnderTest, part: str, order: Order, takes_transfers: bool
) -> None:
    opened.fill(3)
    put_durable(opened, [0, 1, 2])
    forget_dram(opened, [0, 1, 2])
    status, _ = opened.store.inspection.list_chunks(key(1).hex(), 1)
    position = status[0].offset + (100 if part == "header" else HEADER_BYTES + 3 * 8192 + 17)
    opened.devices[status[0].device_index].media[position] ^= 1
    board = new_board(3)
    assert opened.read(
        [0, 1, 2], base=BASE, board=board, order=order, takes_transfers=takes_transfers
    ).wait()
    assert (board.states[[0, 2]] == SliceState.RESIDENT).all()
    assert SliceState.MISSING in board.states[1]
    wait_until(lambda: opened.stats().counters.get("quarantined_chunks") == 1)
    assert opened.store.match(NAMESPACE, [key(1)]) == 0


def test_transfer_that_goes_wrong_once_is_a_miss_and_no_quarantine(tmp_path: Path) -> None:
    """What does not match is read again before anything is decided about the chunk."""

    class OnceWrongDevice(PassingDevice):
        def __init__(self, inner: Device) -> None:
            super().__init__(inner)
            self.is_wrong = True

        def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
            super().readv(buffers, offset)
            if self.is_wrong:
                buffers[-1][7] ^= 1
                self.is_wrong = False

    with open_store(tmp_path, wrap=OnceWrongDevice) as opened:
        opened.fill(1)
        put_durable(opened, [0])
        forget_dram(opened, [0])
        board = new_board(1)
        assert opened.read([0], base=BASE, board=board).wait()
        assert SliceState.MISSING in board.states[0]
        wait_until(lambda: opened.stats().counters.get("unconfirmed_chunks") == 1)
        assert opened.store.match(NAMESPACE, [key(0)]) == 1


@pytest.mark.parametrize("is_damaged", [True, False])
def test_slice_larger_than_the_bounce_buffer_is_verified_in_the_arena(
    opened: StoreUnderTest, is_damaged: bool
) -> None:
    wide = StateLayout(
        model="wide", dtype="float32", layers=(LayerState(StateKind.KV, 8192),) * 2, chunk_tokens=16
    )
    payload = opened.fill(1, layout=wide)
    ticket = opened.put([0], layout=wide)[0]
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])
    if is_damaged:
        status, _ = opened.store.inspection.list_chunks("", 1)
        opened.devices[status[0].device_index].media[status[0].offset + 200_000] ^= 1
    board = new_board(1, 2)
    assert opened.read([0], base=BASE, board=board, layout=wide).wait()
    if is_damaged:
        assert board.states[0].tolist() == [SliceState.RESIDENT, SliceState.MISSING]
    else:
        assert bytes(opened.arena[BASE : BASE + len(payload)]) == payload


def test_a_layer_that_is_not_asked_for_does_not_matter(opened: StoreUnderTest) -> None:
    """It is larger than the bounce buffer, and has no whole pages."""
    layers = (LayerState(StateKind.HIDDEN, 1024), LayerState(StateKind.KV, 6150))
    wide = StateLayout(model="wide", dtype="float32", layers=layers, chunk_tokens=16)
    payload = opened.fill(1, layout=wide)
    (ticket,) = opened.put([0], layout=wide)
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])
    board = new_board(1, 1)
    assert opened.read([0], base=BASE, board=board, layout=wide, layer_count=1).wait()
    assert board.states[0, 0] == SliceState.RESIDENT
    assert bytes(opened.arena[BASE : BASE + 16 * 1024]) == payload[: 16 * 1024]


@pytest.mark.parametrize("from_dram", [True, False])
def test_a_tail_larger_than_the_bounce_buffer_counted_as_an_error_of_its_device(
    opened: StoreUnderTest, from_dram: bool
) -> None:
    """Bug: its last page cannot be transferred into an arena, and each try blamed the device."""
    wide = StateLayout(
        model="wide", dtype="float32", layers=(LayerState(StateKind.KV, 6144),), chunk_tokens=32
    )
    payload = opened.fill(1, layout=wide)
    ticket = opened.put([0], layout=wide, token_count=15)[0]
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED
    if not from_dram:
        forget_dram(opened, [0])
    board = new_board(1, 1)
    assert opened.read([0], base=BASE, board=board, layout=wide).wait()
    assert opened.stats().counters.get("device_errors", 0) == 0
    if from_dram:
        assert bytes(opened.arena[BASE : BASE + 15 * 6144]) == payload[: 15 * 6144]
    else:
        assert board.states[0, 0] == SliceState.MISSING


def test_quarantined_extent_is_kept_and_the_key_can_be_put_again(opened: StoreUnderTest) -> None:
    payload = opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    status, _ = opened.store.inspection.list_chunks(key(0).hex(), 1)
    opened.devices[status[0].device_index].media[status[0].offset + HEADER_BYTES] ^= 1
    assert opened.read([0], base=BASE, board=new_board(1)).wait()
    wait_until(lambda: opened.store.match(NAMESPACE, [key(0)]) == 0)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    board = new_board(1)
    assert opened.read([0], base=BASE, board=board).wait()
    assert (board.states == SliceState.RESIDENT).all()
    assert bytes(opened.arena[BASE : BASE + len(payload)]) == payload
    listed, _ = opened.store.inspection.list_chunks("", 10)
    assert sorted(chunk.quarantined for chunk in listed) == [False, True]
    assert len({(chunk.device_index, chunk.offset) for chunk in listed}) == 2


@pytest.mark.parametrize("operation", ["write", "flush"])
def test_chunk_that_cannot_be_written_is_never_visible(tmp_path: Path, operation: str) -> None:
    broken = Wrapping(FailingDevice)
    with open_store(tmp_path, wrap=broken) as opened:
        opened.fill(2)
        broken[0].broken.add(operation)
        first, second = opened.put([0, 1])
        assert first.durable is not None
        assert second.durable is not None
        assert first.durable.result() is Reason.DEVICE_FAILED
        assert second.durable.result() is Reason.UNSPECIFIED
        assert opened.store.match(NAMESPACE, [key(0)]) == 0
        assert opened.store.match(NAMESPACE, [key(1)]) == 1
        broken[0].broken.clear()
        put_durable(opened, [0])
        failed = [device.failed for device in opened.stats().devices]
        assert failed == [operation == "flush", False]


def test_read_error_is_a_miss(tmp_path: Path) -> None:
    broken = Wrapping(FailingDevice)
    with open_store(tmp_path, wrap=broken) as opened:
        opened.fill(2)
        put_durable(opened, [0, 1])
        forget_dram(opened, [0, 1])
        broken[0].broken.add("read")
        board = new_board(2)
        assert opened.read([0, 1], base=BASE, board=board, order=Order.LAYER_FIRST).wait()
        assert (board.states[0] == SliceState.MISSING).all()
        assert (board.states[1] == SliceState.RESIDENT).all()


def test_layout_with_chunks_larger_than_a_slab_is_refused(opened: StoreUnderTest) -> None:
    huge = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, MIB // 4),))
    with pytest.raises(LayoutRefusedError, match="smaller chunk_tokens"):
        opened.store.layouts.register(huge)
    opened.store.layouts.register(LAYOUT)
    opened.store.layouts.register(LAYOUT)


def test_large_slice_at_an_unaligned_place_is_refused(opened: StoreUnderTest) -> None:
    layout = StateLayout(model="m", dtype="f", layers=(LayerState(StateKind.KV, 8192),))
    with pytest.raises(PlacementError, match="multiples of 4096"):
        opened.read([0], base=BASE + 8, board=new_board(1, 1), layout=layout)


def test_device_that_refuses_a_slab_header_is_not_used(tmp_path: Path) -> None:
    broken = Wrapping(HeaderRefusingDevice)
    with open_store(tmp_path, wrap=broken) as opened:
        broken[0].broken.add("header")
        opened.fill(4)
        put_durable(opened, [0, 1, 2, 3])
        assert {c.device_index for c in opened.store.inspection.list_chunks("", 10)[0]} == {1}
        assert [device.failed for device in opened.stats().devices] == [
            True,
            False,
        ]


def test_durable_put_of_a_chunk_that_only_dram_still_has_writes_it_again(
    tmp_path: Path,
) -> None:
    """The device that held it has failed: the old acknowledgement is true no more."""
    broken = Wrapping(FailingDevice)
    with open_store(tmp_path, wrap=broken) as opened:
        opened.fill(2)
        put_durable(opened, [0])
        broken[0].broken.add("flush")
        (failed,) = opened.put([2])
        assert failed.durable is not None
        assert failed.durable.result() is Reason.DEVICE_FAILED
        assert opened.store.match(NAMESPACE, [key(0)]) == 1
        (again,) = opened.put([0])
        assert again.outcome is PutOutcome.STORED
        assert again.durable is not None
        assert again.durable.result() is Reason.UNSPECIFIED
        forget_dram(opened, [0])
        assert opened.store.match(NAMESPACE, [key(0)]) == 1
        assert opened.store.inspection.list_chunks(key(0).hex(), 2)[0][0].device_index == 1


def test_a_put_that_found_no_room_took_the_only_copy(tmp_path: Path) -> None:
    """Bug: DRAM alone had the chunk, gave it up for the same one, and then the put was refused."""
    with open_store(tmp_path, device_count=1) as opened:
        put_durable(opened, [0])
        error = DeviceError("device0", "flush", "gone", sticky=True)
        opened.store._store.failures.report(0, error)
        for _ in range(2):
            (again,) = opened.put([0])
            assert (again.outcome, again.reason) == (PutOutcome.REJECTED, Reason.STORE_FULL)
            assert opened.store.match(NAMESPACE, [key(0)]) == 1


def test_second_write_of_a_key_is_refused_and_leaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two puts can reach the store together when a deletion freed the key in between."""
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, device_count=1, wrap=gates) as opened:
        opened.fill(1)
        store = opened.store._store
        sealed: list[SealedChunk] = []
        write = store.writes.write

        def remember(chunk: SealedChunk, extent: Extent) -> Future[Reason]:
            sealed.append(chunk)
            return write(chunk, extent)

        monkeypatch.setattr(store.writes, "write", remember)
        (first,) = opened.put([0])
        used = opened.stats().devices[0].used_bytes
        extent = store.extents.allocate(sealed[0].class_bytes, 0)
        assert isinstance(extent, Extent)
        assert write(sealed[0], extent).result() is Reason.DEADLINE
        gates[0].gate.set()
        assert first.durable is not None
        assert first.durable.result() is Reason.UNSPECIFIED
        extent = store.extents.allocate(sealed[0].class_bytes, 0)
        assert isinstance(extent, Extent)
        assert write(sealed[0], extent).result() is Reason.UNSPECIFIED
        assert opened.stats().devices[0].used_bytes == used


def test_write_whose_index_cannot_be_read_is_settled(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.fill(1)
    store = opened.store._store
    write, find = store.writes.write, store.find

    def fail(_: object) -> None:
        raise IndexFailure("unreadable")

    def write_blindly(sealed: SealedChunk, extent: Extent) -> Future[Reason]:
        monkeypatch.setattr(store.writes, "_find", fail)
        try:
            return write(sealed, extent)
        finally:
            monkeypatch.setattr(store.writes, "_find", find)

    monkeypatch.setattr(store.writes, "write", write_blindly)
    (ticket,) = opened.put([0])
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.INTERNAL
    assert opened.stats().dram_chunk_count == 0
    assert sum(device.used_bytes for device in opened.stats().devices) == 0


def test_index_that_cannot_be_read_leaves_nothing_pinned_or_claimed(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.fill(2)
    put_durable(opened, [0])
    index = opened.store._store.index

    def fail(*_: object) -> None:
        raise IndexFailure("unreadable")

    with monkeypatch.context() as patch:
        patch.setattr(index, "get_many", fail)
        board = new_board(1)
        assert opened.read([1], base=BASE, board=board).wait(PATIENCE_S)
        assert (board.states[0] == SliceState.MISSING).all()
        patch.setattr(opened.store._store, "find", lambda chunks: [None] * len(chunks))
        patch.setattr(opened.store._store, "pending", fail)
        with pytest.raises(IndexFailure):
            opened.put([1])
        patch.undo()
    with monkeypatch.context() as patch:
        patch.setattr(index, "get", fail)
        with pytest.raises(DeletionError):
            opened.store.delete(NAMESPACE, [key(0)]).result()
    put_durable(opened, [1])
    assert opened.store.delete(NAMESPACE, [key(1)]).result() == 1
    assert not opened.store._store.pins.count
    assert opened.stats().dram_chunk_count == 0
