"""Reads through the whole reader, as far as other tests do not cover them."""

import mmap
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from threading import Event

import numpy as np
import pytest

from kvstored.format.identity import ChunkId
from kvstored.io.device import Device
from kvstored.io.passing import PassingDevice
from kvstored.store.read import landings
from kvstored.store.read import reader as reader_module
from kvstored.store.read.lane import Transfer
from kvstored.store.read.placement import Placement
from kvstored.store.read.plan import Order
from kvstored.store.read.reader import INLINE_COPY_BYTES_MAX
from kvstored_contract.board import BoardWord, SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.support.stores import (
    BASE,
    LAYOUT,
    MIB,
    NAMESPACE,
    forget_dram,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.mark.parametrize("from_dram", [True, False])
def test_no_view_of_an_arena_outlives_its_read(tmp_path: Path, from_dram: bool) -> None:
    """A thread that kept its last transfer would unmap a dead session's arena much later."""
    with open_store(tmp_path) as opened:
        area = mmap.mmap(-1, 8 * MIB)
        opened.arena = memoryview(area)
        opened.fill(2)
        for ticket in opened.put([0, 1]):
            assert ticket.durable is not None
            ticket.durable.result()
        if not from_dram:
            for number in (0, 1):
                opened.store._dram.drop(ChunkId(NAMESPACE, key(number)))
        stream = opened.read([0, 1], base=4 * MIB, board=new_board(2, LAYOUT.layer_count))
        assert stream.wait()
        del stream, ticket
        opened.arena = memoryview(b"")

        def is_free() -> bool:
            try:
                area.close()
            except BufferError:
                return False
            return True

        wait_until(is_free)


class WatchedDevice(PassingDevice):
    """Keeps which memory the device transferred into."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.landed: list[np.ndarray] = []

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.landed.extend(np.frombuffer(buffer, np.uint8) for buffer in buffers)
        super().readv(buffers, offset)


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize(
    ("takes_transfers", "base", "goes_direct"),
    [(True, BASE, True), (True, BASE + 512, False), (False, BASE, False)],
)
def test_devices_transfer_into_arenas_that_take_it(
    tmp_path: Path, order: Order, takes_transfers: bool, base: int, goes_direct: bool
) -> None:
    devices: list[WatchedDevice] = []

    def watched(device: Device) -> Device:
        devices.append(WatchedDevice(device))
        return devices[-1]

    with open_store(tmp_path, wrap=watched) as opened:
        payload = opened.fill(3)
        put_durable(opened, [0, 1, 2])
        forget_dram(opened, [0, 1, 2])
        stream = opened.read(
            [0, 1, 2],
            base=base,
            board=new_board(3, LAYOUT.layer_count),
            order=order,
            takes_transfers=takes_transfers,
        )
        assert stream.wait()
        assert (stream.task.target.board.states == SliceState.RESIDENT).all()
        size = len(payload)
        assert bytes(opened.arena[base : base + size]) == payload
        arena = np.frombuffer(opened.arena, np.uint8)
        direct_bytes = sum(
            part.nbytes
            for device in devices
            for part in device.landed
            if np.shares_memory(part, arena)
        )
        assert direct_bytes == (size if goes_direct else 0)


class HangingDevice(PassingDevice):
    """Answers no read until ``answers`` is set."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.answers = Event()
        self.answers.set()

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        assert self.answers.wait(PATIENCE_S)
        super().readv(buffers, offset)


@pytest.mark.parametrize("ends_by", ["deadline", "cancel", "board"])
def test_a_drive_that_hangs_kept_queued_reads_beyond_their_deadline(
    tmp_path: Path, ends_by: str
) -> None:
    """Bug: a lane without slots looked at no deadline, and clients gave up their sessions."""
    devices: list[HangingDevice] = []

    def hanging(device: Device) -> Device:
        devices.append(HangingDevice(device))
        return devices[-1]

    numbers = list(range(8))
    with open_store(tmp_path, device_count=1, wrap=hanging) as opened:
        opened.fill(8)
        put_durable(opened, numbers)
        forget_dram(opened, numbers)
        reader = opened.store.read_path._reader
        devices[0].answers.clear()
        try:
            others = opened.read(numbers, base=BASE, board=new_board(8))
            wait_until(lambda: not reader._lanes[0]._slots)
            timeout_s = 0.0 if ends_by == "deadline" else PATIENCE_S
            stream = opened.read(numbers, base=BASE, board=new_board(8), timeout_s=timeout_s)
            board = stream.task.target.board
            assert not stream.wait(0)
            if ends_by == "board":
                board.words[BoardWord.CANCEL] = 1
            if ends_by == "cancel":
                opened.store.read_path.cancel(stream)
            else:
                assert stream.is_given_up()
                opened.store.read_path.give_up(stream)
            assert stream.wait(0)
            is_late = ends_by == "deadline"
            assert (board.states == (SliceState.LATE if is_late else SliceState.SKIPPED)).all()
            assert stream not in reader._lanes[0]._streams
            assert not others.is_given_up()
            opened.store.read_path.give_up(others)
            assert not others.wait(0)
        finally:
            devices[0].answers.set()
        assert others.wait(PATIENCE_S)
        assert (others.task.target.board.states == SliceState.RESIDENT).all()


@pytest.mark.parametrize("place", ["from_dram", "submit", "verify", "header"])
def test_transfers_that_failed_in_the_daemon_kept_their_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Bug: a lane lost a slot for each, until it served nobody; a thread of copies ended."""

    def fail(*_: object) -> None:
        raise MemoryError

    numbers = list(range(8))
    with open_store(tmp_path, device_count=1) as opened:
        payload = opened.fill(8)
        put_durable(opened, numbers)
        if place != "from_dram":
            forget_dram(opened, numbers)
        reader = opened.store.read_path._reader
        slot_counts = [len(lane._slots) for lane in reader._lanes]
        monkeypatch.setattr(reader_module, "INLINE_COPY_BYTES_MAX", 0)
        with monkeypatch.context() as patch:
            if place == "submit":
                patch.setattr(reader._engine, "submit", fail)
            if place == "header":
                patch.setattr(landings, "is_header_of", fail)
            patch.setattr(landings if place == "verify" else reader_module, "scatter", fail)
            for _ in range(3):
                stream = opened.read(numbers, base=BASE, board=new_board(8))
                assert stream.wait(PATIENCE_S)
                assert (stream.task.target.board.states == SliceState.MISSING).all()
        wait_until(lambda: [len(lane._slots) for lane in reader._lanes] == slot_counts)
        stream = opened.read(numbers, base=BASE, board=new_board(8))
        assert stream.wait(PATIENCE_S)
        assert (stream.task.target.board.states == SliceState.RESIDENT).all()
        assert bytes(opened.arena[BASE : BASE + len(payload)]) == payload


class CountedQueue:
    """Passes on to a queue, and counts what is put."""

    def __init__(self, inner: "SimpleQueue[Transfer | None]") -> None:
        self._inner = inner
        self.get = inner.get
        self.put_count = 0

    def put(self, transfer: Transfer | None) -> None:
        self.put_count += 1
        self._inner.put(transfer)


@pytest.mark.parametrize(("chunk_count", "is_over_at_once"), [(1, True), (80, False)])
def test_small_reads_from_dram_are_over_when_they_have_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_count: int, is_over_at_once: bool
) -> None:
    """They are copied on the calling thread, and no other is woken."""
    numbers = list(range(chunk_count))
    with open_store(tmp_path, slabs_per_device=8, dram_bytes=8 * MIB) as opened:
        payload = opened.fill(chunk_count)
        put_durable(opened, numbers)
        copies = CountedQueue(opened.store.read_path._reader._copies)
        monkeypatch.setattr(opened.store.read_path._reader, "_copies", copies)
        board = new_board(chunk_count, LAYOUT.layer_count)
        stream = opened.read(numbers, base=BASE, board=board)
        assert stream.wait(0 if is_over_at_once else None)
        assert (copies.put_count == 0) is is_over_at_once
        assert (board.states == SliceState.RESIDENT).all()
        assert bytes(opened.arena[BASE : BASE + len(payload)]) == payload


TINY = StateLayout(
    model="tiny", dtype="float32", layers=(LayerState(StateKind.KV, 64),), chunk_tokens=1
)
"""Chunks of one slice of 64 bytes, which have two pages in DRAM."""


@pytest.mark.parametrize(
    ("chunk_count", "times", "inline_bytes_max"),
    # As many as the daemon copies at once, and as many as no stack has room for.
    [(250, 1, INLINE_COPY_BYTES_MAX), (10, 2000, 1 << 30)],
)
def test_many_tiny_runs_from_dram_are_copied_one_after_the_other(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    chunk_count: int,
    times: int,
    inline_bytes_max: int,
) -> None:
    """*Bug:* each run began the next one within its own calls, and 250 were too deep."""
    monkeypatch.setattr(reader_module, "INLINE_COPY_BYTES_MAX", inline_bytes_max)
    numbers = list(range(chunk_count))
    with open_store(tmp_path, slabs_per_device=8, dram_bytes=8 * MIB) as opened:
        payload = opened.fill(chunk_count, layout=TINY)
        for ticket in opened.put(numbers, layout=TINY):
            assert ticket.durable is not None
            ticket.durable.result()
        board = new_board(chunk_count * times, TINY.layer_count)
        size = TINY.slice_bytes(0, 1)
        dense = Placement(base=BASE, layer_stride=size, chunk_stride=size)
        stream = opened.read(numbers * times, base=BASE, board=board, layout=TINY, placement=dense)
        assert stream.wait(0)
        assert stream.task.dram_chunks == chunk_count * times
        assert (board.states == SliceState.RESIDENT).all()
        chunks = [payload[start:][:size] for start in range(0, len(payload), TINY.layer_stride)]
        expected = b"".join(chunks) * times
        assert bytes(opened.arena[BASE : BASE + len(expected)]) == expected
