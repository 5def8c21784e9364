"""The tiers as one store, over devices in memory."""

from pathlib import Path

import numpy as np
import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order
from kvstored.store.write.committer import Commit
from kvstored.tiers.chunks.requests import PutOutcome
from kvstored_contract.board import BoardWord, SliceState
from kvstored_contract.layout import StateLayout
from kvstored_contract.reasons import Reason
from tests.support.devices import GatedDevice, Wrapping
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
from tests.support.waiting import PATIENCE_S, soon


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("from_dram", [True, False])
def test_every_order_brings_back_what_was_put(
    opened: StoreUnderTest, order: Order, from_dram: bool
) -> None:
    numbers = list(range(20))
    payload = opened.fill(20)
    put_durable(opened, numbers)
    if not from_dram:
        forget_dram(opened, numbers)
    board = new_board(20)
    stream = opened.read(numbers, base=BASE, board=board, order=order)
    assert stream.wait()
    assert (board.states == SliceState.RESIDENT).all()
    assert bytes(opened.arena[BASE : BASE + len(payload)]) == payload
    assert (stream.task.dram_chunks, stream.task.nvme_chunks) == ((20, 0) if from_dram else (0, 20))
    word = BoardWord.DRAM_BYTES if from_dram else BoardWord.DEVICE_BYTES
    assert board.words[word] >= len(payload)
    assert board.words[BoardWord.FINISHED] == 1


def test_reads_mix_tiers_and_name_what_is_missing(opened: StoreUnderTest) -> None:
    opened.fill(4)
    put_durable(opened, [0, 1, 2, 3])
    forget_dram(opened, [1, 2])
    board = new_board(5)
    assert opened.read([0, 1, 9, 2, 3], base=BASE, board=board).wait()
    assert [state[0] for state in board.states] == [1, 1, SliceState.MISSING, 1, 1]
    assert opened.store.match(NAMESPACE, [key(n) for n in (0, 1, 2, 9, 3)]) == 3


@pytest.mark.parametrize("first", [0, 1, 3])
def test_layer_range_is_read_alone(opened: StoreUnderTest, first: int) -> None:
    payload = opened.fill(3)
    put_durable(opened, [0, 1, 2])
    forget_dram(opened, [0, 1, 2])
    stride = LAYOUT.layer_stride
    board = new_board(3, 1)
    placement = Placement(base=BASE, layer_stride=stride, chunk_stride=stride)
    stream = opened.read(
        [0, 1, 2], base=BASE, board=board, placement=placement, first_layer=first, layer_count=1
    )
    assert stream.wait()
    assert (board.states == SliceState.RESIDENT).all()
    for chunk in range(3):
        start = (chunk * LAYOUT.layer_count + first) * stride
        expected = payload[start : start + stride]
        assert bytes(opened.arena[BASE + chunk * stride :][:stride]) == expected


@pytest.mark.parametrize("from_dram", [True, False])
@pytest.mark.parametrize("base", [BASE + 24, BASE])
def test_scattered_destination(opened: StoreUnderTest, from_dram: bool, base: int) -> None:
    """Blocks of a quarter slice, aligned or not, in any order."""
    payload = opened.fill(2)
    put_durable(opened, [0, 1])
    if not from_dram:
        forget_dram(opened, [0, 1])
    fragment = LAYOUT.slice_bytes(0) // 4
    blocks = tuple(fragment * number for number in (7, 0, 3, 5, 1, 6, 2, 4))
    placement = Placement(base=base, layer_stride=8 * fragment, block_offsets=blocks)
    board = new_board(2)
    assert opened.read([0, 1], base=0, board=board, placement=placement).wait()
    assert (board.states == SliceState.RESIDENT).all()
    for chunk in range(2):
        of_slices = placement.fragments(
            chunk=chunk,
            first_layer=0,
            slice_bytes=(4 * fragment,) * LAYOUT.layer_count,
            chunk_count=2,
        )
        for layer, parts in enumerate(of_slices):
            got = b"".join(
                bytes(opened.arena[offset : offset + size]) for offset, size in parts.pairs()
            )
            start = (chunk * LAYOUT.layer_count + layer) * LAYOUT.layer_stride
            assert got == payload[start : start + 4 * fragment]


def test_short_chunk_is_read_through_the_bounce_buffer(opened: StoreUnderTest) -> None:
    payload = opened.fill(1)
    ticket = opened.put([0], token_count=3)[0]
    assert ticket.durable is not None
    assert ticket.durable.result() is Reason.UNSPECIFIED
    forget_dram(opened, [0])
    board = new_board(1)
    opened.arena[BASE : BASE + MIB] = b"\xff" * MIB
    assert opened.read([0], base=BASE, board=board).wait()
    assert (board.states == SliceState.RESIDENT).all()
    size = LAYOUT.slice_bytes(0, 3)
    for layer in range(LAYOUT.layer_count):
        start = BASE + layer * LAYOUT.layer_stride
        expected = payload[layer * LAYOUT.layer_stride :][:size]
        assert bytes(opened.arena[start : start + size]) == expected
        assert opened.arena[start + size] == 0xFF


def test_engine_pointer_stops_reads_of_chunks_that_it_has_reached(tmp_path: Path) -> None:
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, device_count=1, wrap=gates) as opened:
        gates[0].gate.set()
        opened.fill(20)
        put_durable(opened, list(range(20)))
        forget_dram(opened, list(range(20)))
        gates[0].gate.clear()
        board = new_board(20)
        window = 2 * (LAYOUT.chunk_bytes() + HEADER_BYTES)
        stream = opened.read(list(range(20)), base=BASE, board=board, window_bytes=window)
        gates[0].started.acquire()
        gates[0].started.acquire()
        board.words[BoardWord.POINTER] = 20
        gates[0].gate.set()
        assert stream.wait()
        assert (board.states[18:] == SliceState.RESIDENT).all()
        assert (board.states[:18] == SliceState.SKIPPED).all()
        assert board.words[BoardWord.DEVICE_BYTES] == window


@pytest.mark.parametrize("window_runs", [2, 4])
def test_a_window_is_read_from_all_devices_at_once(tmp_path: Path, window_runs: int) -> None:
    """A read with a window used to read one device after the other."""
    numbers = list(range(12))
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, device_count=2, wrap=gates) as opened:
        for gate in gates:
            gate.gate.set()
        opened.fill(12)
        put_durable(opened, numbers)
        forget_dram(opened, numbers)
        for gate in gates:
            while gate.started.acquire(blocking=False):
                pass
        board = new_board(12)
        window_bytes = window_runs * (LAYOUT.chunk_bytes() + HEADER_BYTES)
        for gate in gates:
            gate.gate.clear()
        stream = opened.read(numbers, base=BASE, board=board, window_bytes=window_bytes)
        for gate in gates:
            for _ in range(window_runs // 2):
                assert gate.started.acquire(timeout=PATIENCE_S)
        for gate in gates:
            gate.gate.set()
        assert stream.wait()
        assert (board.states == SliceState.RESIDENT).all()


@pytest.mark.parametrize("by_board", [True, False])
def test_cancel_leaves_only_what_is_in_flight(tmp_path: Path, by_board: bool) -> None:
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, device_count=1, wrap=gates) as opened:
        gates[0].gate.set()
        opened.fill(20)
        put_durable(opened, list(range(20)))
        forget_dram(opened, list(range(20)))
        gates[0].gate.clear()
        board = new_board(20)
        stream = opened.read(list(range(20)), base=BASE, board=board)
        gates[0].started.acquire()
        if by_board:
            board.words[BoardWord.CANCEL] = 1
        else:
            opened.store.read_path.cancel(stream)
        assert not stream.wait(0)
        gates[0].gate.set()
        assert stream.wait()
        counts = np.unique(board.states[:, 0], return_counts=True)
        assert set(counts[0]) == {SliceState.RESIDENT, SliceState.SKIPPED}
        assert counts[1][0] <= 4


def test_deadline_that_has_passed_reads_nothing(opened: StoreUnderTest) -> None:
    opened.fill(2)
    put_durable(opened, [0, 1])
    board = new_board(3)
    assert opened.read([0, 1, 2], base=BASE, board=board, timeout_s=-1).wait()
    assert [row[0] for row in board.states] == [
        SliceState.LATE,
        SliceState.LATE,
        SliceState.MISSING,
    ]


def test_stored_twice_is_stored_once(opened: StoreUnderTest) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    again = opened.put([0])[0]
    assert again.outcome is PutOutcome.EXISTED
    assert again.durable is not None
    assert again.durable.result() is Reason.UNSPECIFIED
    assert opened.stats().chunk_count == 1


def test_deletion_that_ends_during_a_look_up_does_not_show_the_chunk_again(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    forget_dram(opened, [0])
    store, chunk = opened.store._store, ChunkId(NAMESPACE, key(0))
    submit, get_many = store.committer.submit, store.index.get_many
    held: list[Commit] = []
    monkeypatch.setattr(store.committer, "submit", held.append)
    deletion = store.delete(chunk)

    def overtaken(chunks: list[ChunkId]) -> list[ChunkRecord | None]:
        records = get_many(chunks)
        submit(held.pop())
        assert deletion.result()
        return records

    monkeypatch.setattr(store.index, "get_many", overtaken)
    assert store.find([chunk]) == [None]


def test_delete_is_visible_at_once_and_frees_the_extent(opened: StoreUnderTest) -> None:
    opened.fill(2)
    put_durable(opened, [0, 1])
    used = sum(device.used_bytes for device in opened.stats().devices)
    deleted = opened.store.delete(NAMESPACE, [key(0), key(7)])
    assert opened.store.match(NAMESPACE, [key(0)]) == 0
    assert deleted.result() == 1
    assert sum(device.used_bytes for device in opened.stats().devices) == used // 2
    assert opened.store.delete(NAMESPACE, []).result() == 0


def test_delete_while_the_chunk_is_being_written(tmp_path: Path) -> None:
    """The deletion follows the write, and a put behind both gets an extent of its own."""
    gates = Wrapping(GatedDevice)
    with open_store(tmp_path, device_count=1, wrap=gates) as opened:
        opened.fill(1)
        first = opened.put([0])[0]
        deleted = opened.store.delete(NAMESPACE, [key(0)])
        assert opened.store.match(NAMESPACE, [key(0)]) == 0
        assert not deleted.done()
        late = soon(lambda: opened.put([0], timeout_s=0.01))[0]
        assert (late.outcome, late.reason) == (PutOutcome.REJECTED, Reason.DEADLINE)
        gates[0].gate.set()
        assert deleted.result() == 1
        assert first.durable is not None
        assert first.durable.result() is Reason.UNSPECIFIED
        assert opened.store.match(NAMESPACE, [key(0)]) == 0
        assert opened.stats().devices[0].used_bytes == 0
        put_durable(opened, [0])
        assert opened.store.match(NAMESPACE, [key(0)]) == 1


def test_chunk_of_another_layout_under_the_same_key_is_a_miss(opened: StoreUnderTest) -> None:
    opened.fill(2)
    put_durable(opened, [0, 1])
    forget_dram(opened, [0])
    other = StateLayout(model="other", dtype="float32", layers=LAYOUT.layers, chunk_tokens=16)
    board = new_board(2)
    assert opened.read([0, 1], base=BASE, board=board, layout=other).wait()
    assert (board.states == SliceState.MISSING).all()


def test_inspect_shows_the_header(opened: StoreUnderTest) -> None:
    opened.fill(1)
    put_durable(opened, [0])
    detail = opened.store.inspection.inspect(key(0).hex()[:64])
    assert detail is not None
    assert [part.byte_count for part in detail.slices] == [LAYOUT.slice_bytes(0)] * 4
    assert detail.status.in_dram
    assert opened.store.inspection.inspect("ff") is None
