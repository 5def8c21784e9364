"""What a put into a full store writes: its own extent, and nothing else."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from kvstored.format.geometry import ChunkGeometry, Extent, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.format.slab_header import SLAB_HEADER_BYTES
from kvstored.io.device import Device
from kvstored.io.passing import PassingDevice
from kvstored_contract.board import SliceState
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.devices import Wrapping
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

PER_SLAB = (MIB - SLAB_HEADER_BYTES) // class_bytes(LAYOUT)


def layout_of(model: str, bytes_per_token: int) -> StateLayout:
    layers = (LayerState(StateKind.KV, bytes_per_token),) * 4
    return StateLayout(model=model, dtype="float32", layers=layers, chunk_tokens=16)


LAYOUTS = (LAYOUT, layout_of("wide", 1024), layout_of("wider", 1792))
"""Three size classes: chunks of 36, 68 and 116 KiB."""


class WriteLog(PassingDevice):
    """Remembers where each write went."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.writes: list[tuple[int, int]] = []

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        super().writev(buffers, offset)
        self.writes.append((offset, sum(map(len, buffers))))


class Lab:
    """A store, the writes that reach its devices, and images of these from before."""

    def __init__(self, opened: StoreUnderTest, logs: list[WriteLog]) -> None:
        self.opened = opened
        self.logs = logs
        self.images: list[np.ndarray] = []

    def fill_up(self) -> int:
        """Fills every slab with chunks of ``LAYOUT``; returns how many there are."""
        self.opened.fill(1)
        count = PER_SLAB * 8
        for number in range(count):
            put_durable(self.opened, [number])
        assert self.counters.get("evicted_chunks", 0) == 0
        return count

    @property
    def counters(self) -> dict[str, int]:
        return dict(self.opened.stats().counters)

    @property
    def written_bytes(self) -> int:
        return sum(device.written_bytes for device in self.opened.stats().devices)

    def forget_writes(self) -> None:
        for log in self.logs:
            log.writes.clear()
        self.images = [np.array(device.media) for device in self.opened.devices]

    def put(self, number: int, layout: StateLayout, token_count: int | None = None) -> bytes:
        payload = self.opened.fill(1, seed=number, layout=layout)
        (ticket,) = self.opened.put([number], layout=layout, token_count=token_count)
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.UNSPECIFIED
        return payload

    def writes(self) -> set[tuple[int, int, int]]:
        """Device, offset and length of every write since ``forget_writes``."""
        found = [
            (device, offset, byte_count)
            for device, log in enumerate(self.logs)
            for offset, byte_count in log.writes
        ]
        assert len(set(found)) == len(found), "something was written twice"
        return set(found)

    def extent_of(self, number: int) -> Extent:
        record = self.opened.store._store.index.get(ChunkId(NAMESPACE, key(number)))
        assert record is not None
        return record.extent

    def assert_nothing_else_changed(self) -> None:
        for index, offset, byte_count in self.writes():
            image = self.images[index]
            end = offset + byte_count
            image[offset:end] = self.opened.devices[index].media[offset:end]
        for image, device in zip(self.images, self.opened.devices, strict=True):
            assert np.array_equal(image, device.media)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    logs = Wrapping(WriteLog)
    with open_store(tmp_path, wrap=logs) as opened:
        for layout in LAYOUTS:
            opened.store.layouts.register(layout)
        yield Lab(opened, logs)


def test_reuse_writes_exactly_the_new_extent(lab: Lab) -> None:
    count = lab.fill_up()
    lab.forget_writes()
    before = lab.written_bytes
    payload = lab.put(count, LAYOUT)
    assert lab.counters["evicted_chunks"] > 0
    extent = lab.extent_of(count)
    assert lab.writes() == {(extent.device_index, extent.offset, class_bytes(LAYOUT))}
    assert lab.written_bytes - before == class_bytes(LAYOUT)
    lab.assert_nothing_else_changed()
    forget_dram(lab.opened, [count])
    board = new_board(1)
    assert lab.opened.read([count], base=BASE, board=board).wait()
    assert (board.states == SliceState.RESIDENT).all()
    assert bytes(lab.opened.arena[BASE : BASE + len(payload)]) == payload


def test_a_short_chunk_writes_no_more_than_its_tokens(lab: Lab) -> None:
    """The rest of the extent keeps the bytes of the chunk that was evicted."""
    count = lab.fill_up()
    lab.forget_writes()
    lab.put(count, LAYOUT, token_count=3)
    extent = lab.extent_of(count)
    byte_count = ChunkGeometry.of(LAYOUT, 3).extent_bytes
    assert byte_count < extent.byte_count
    assert lab.writes() == {(extent.device_index, extent.offset, byte_count)}
    lab.assert_nothing_else_changed()


def test_a_slab_that_changes_its_class_costs_one_header(lab: Lab) -> None:
    count = lab.fill_up()
    lab.forget_writes()
    wide = LAYOUTS[1]
    lab.put(count, wide)
    extent = lab.extent_of(count)
    allocator = lab.opened.store._store.extents.allocator
    header = allocator.geometry.slab_offset(allocator.geometry.slab_index(extent))
    assert lab.writes() == {
        (extent.device_index, header, SLAB_HEADER_BYTES),
        (extent.device_index, extent.offset, class_bytes(wide)),
    }
    lab.assert_nothing_else_changed()


def test_a_long_run_writes_every_byte_once(lab: Lab) -> None:
    """Write amplification is 1: chunks, and one header for each slab that is opened."""
    generator = random.Random(7)
    allocator = lab.opened.store._store.extents.allocator
    for number in range(400):
        layout = generator.choice(LAYOUTS)
        lab.forget_writes()
        lab.put(number, layout)
        extent = lab.extent_of(number)
        header = allocator.geometry.slab_offset(allocator.geometry.slab_index(extent))
        chunk = (extent.device_index, extent.offset, class_bytes(layout))
        assert lab.writes() - {(extent.device_index, header, SLAB_HEADER_BYTES)} == {chunk}
        lab.assert_nothing_else_changed()
    assert lab.counters["evicted_chunks"] > 200
