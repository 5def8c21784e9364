"""Chunks of a layout with a codec: their slices have lengths of their own, in every tier."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvstored.format.geometry import ChunkGeometry, class_bytes, class_bytes_for
from kvstored.format.identity import ChunkId
from kvstored.store.index.entry import Table
from kvstored.store.index.index import IndexChange
from kvstored.store.read.plan import Order
from kvstored.tiers.chunks.promoter import READS_MIN
from kvstored.tiers.chunks.requests import (
    LayoutRefusedError,
    NewChunk,
    PutOutcome,
    PutRequest,
    PutTicket,
)
from kvstored_contract.board import Board, SliceState, board_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.stores import BASE, LAYOUT, NAMESPACE, StoreUnderTest, key, open_store
from tests.support.waiting import PATIENCE_S, wait_until

LAYERS = (LayerState(StateKind.KV, 1024), LayerState(StateKind.NONE, 0)) + (
    LayerState(StateKind.HIDDEN, 500),
) * 2
ENCODED = replace(LAYOUT, model="encoded", layers=LAYERS, codec="lab")
STORED_LAYERS = (0, 2, 3)
NUMBERS = list(range(12))
STRIDE = ENCODED.layer_stride
UNTOUCHED = 0xEE


def lengths_of(number: int) -> tuple[int, ...]:
    """Lengths of many kinds: one byte, a whole page, the most that there may be."""
    choices = [1, 4095, 4096, 4097, 7000, 8000]
    sizes = [choices[(number + layer) % len(choices)] for layer in range(4)]
    return (16 * 1024 if number == 0 else sizes[0], 0, sizes[2], sizes[3])


def payload(number: int, layer: int) -> bytes:
    return np.random.default_rng((number, layer)).bytes(lengths_of(number)[layer])


def geometry_of(number: int) -> ChunkGeometry:
    return ChunkGeometry.of_slices(lengths_of(number))


def chunk(number: int) -> ChunkId:
    return ChunkId(NAMESPACE, key(number))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[StoreUnderTest]:
    with open_store(tmp_path) as store:
        yield store


def put(opened: StoreUnderTest, numbers: list[int]) -> list[PutTicket]:
    placement = opened.placement(layout=ENCODED)
    for slot, number in enumerate(numbers):
        for layer in STORED_LAYERS:
            start = slot * placement.chunk_stride + layer * STRIDE
            data = payload(number, layer)
            opened.arena[start : start + len(data)] = data
    opened.store.layouts.register(ENCODED)
    return opened.store.put_path.put(
        PutRequest(
            namespace_id=NAMESPACE,
            layout=ENCODED,
            chunks=tuple(
                NewChunk(key(number), b"", 16, number, lengths_of(number)) for number in numbers
            ),
            source=opened.arena,
            placement=placement,
            deadline=time.monotonic() + PATIENCE_S,
        )
    )


def put_durable(opened: StoreUnderTest, numbers: list[int]) -> None:
    for ticket in put(opened, numbers):
        assert ticket.durable is not None
        assert ticket.durable.result(PATIENCE_S) is Reason.UNSPECIFIED


def forget_dram(opened: StoreUnderTest, numbers: list[int]) -> None:
    for number in numbers:
        opened.store._dram.drop(chunk(number))


def new_board(chunk_count: int, layer_count: int) -> Board:
    size = board_bytes(chunk_count=chunk_count, layer_count=layer_count, has_lengths=True)
    return Board(
        memoryview(bytearray(size)),
        chunk_count=chunk_count,
        layer_count=layer_count,
        has_lengths=True,
    )


def read(
    opened: StoreUnderTest,
    numbers: list[int],
    *,
    order: Order = Order.TAIL_FIRST,
    layers: range = range(4),
    layout: StateLayout = ENCODED,
    takes_transfers: bool = False,
) -> tuple[set[int], int, int]:
    """Reads and compares: the whole chunks, device bytes and DRAM bytes."""
    board = new_board(len(numbers), len(layers))
    opened.arena[BASE:] = bytes([UNTOUCHED]) * (len(opened.arena) - BASE)
    stream = opened.read(
        numbers,
        base=BASE,
        board=board,
        order=order,
        first_layer=layers.start,
        layer_count=len(layers),
        layout=layout,
        takes_transfers=takes_transfers,
    )
    assert stream.wait(PATIENCE_S)
    whole = set()
    stride = opened.placement(layout=layout).chunk_stride
    for slot, number in enumerate(numbers):
        assert SliceState.PENDING not in board.states[slot]
        if not (board.states[slot] == SliceState.RESIDENT).all():
            continue
        whole.add(number)
        assert board.lengths is not None
        assert board.lengths[slot].tolist() == list(lengths_of(number)[layers.start : layers.stop])
        for place, layer in enumerate(layers):
            start = BASE + slot * stride + place * STRIDE
            found = bytes(opened.arena[start : start + STRIDE])
            wanted = payload(number, layer)
            assert found == wanted + bytes([UNTOUCHED]) * (STRIDE - len(wanted))
    return whole, stream.progress.device_bytes, stream.progress.dram_bytes


@pytest.mark.parametrize("takes_transfers", [False, True])
@pytest.mark.parametrize("order", Order)
def test_the_bytes_that_were_put_come_back_and_no_others_move(
    opened: StoreUnderTest, order: Order, takes_transfers: bool
) -> None:
    put_durable(opened, NUMBERS)
    moved = sum(geometry_of(number).extent_bytes for number in NUMBERS)
    assert read(opened, NUMBERS, order=order) == (set(NUMBERS), 0, moved)
    forget_dram(opened, NUMBERS)
    whole = read(opened, NUMBERS, order=order, takes_transfers=takes_transfers)
    assert whole == (set(NUMBERS), moved, 0)
    assert opened.stats().counters.get("suspected_chunks", 0) == 0


@pytest.mark.parametrize("layers", [range(1, 3), range(3, 4), range(2)])
def test_a_range_of_layers(opened: StoreUnderTest, layers: range) -> None:
    put_durable(opened, NUMBERS)
    forget_dram(opened, NUMBERS)
    for order in Order:
        assert read(opened, NUMBERS, order=order, layers=layers)[0] == set(NUMBERS)


def test_frames_and_extents_have_the_class_of_what_is_stored(opened: StoreUnderTest) -> None:
    put_durable(opened, NUMBERS)
    sizes = [class_bytes_for(ENCODED, geometry_of(number)) for number in NUMBERS]
    assert sum(sizes) < 0.8 * len(NUMBERS) * class_bytes(ENCODED)
    stats = opened.stats()
    assert stats.dram_used_bytes == sum(sizes)
    assert sum(device.used_bytes for device in stats.devices) == sum(sizes)
    slabs = sum(device.written_bytes for device in stats.devices) - sum(
        geometry_of(number).extent_bytes for number in NUMBERS
    )
    assert slabs % 4096 == 0
    assert 0 < slabs <= 4096 * 2 * len(set(sizes))


def test_a_promoted_chunk_lies_in_a_frame_of_its_class(opened: StoreUnderTest) -> None:
    put_durable(opened, [3])
    forget_dram(opened, [3])
    assert opened.stats().dram_used_bytes == 0
    for _ in range(READS_MIN):
        read(opened, [3])
    wait_until(lambda: opened.store._dram.contains(chunk(3)))
    used_bytes = opened.stats().dram_used_bytes
    assert used_bytes == class_bytes_for(ENCODED, geometry_of(3))
    assert read(opened, [3])[1:] == (0, geometry_of(3).extent_bytes)


def test_another_layout_does_not_find_the_chunk(opened: StoreUnderTest) -> None:
    put_durable(opened, [1])
    other = replace(ENCODED, codec="other")
    assert read(opened, [1], layout=other)[0] == set()
    forget_dram(opened, [1])
    assert read(opened, [1], layout=other)[0] == set()
    assert read(opened, [1], layout=replace(ENCODED, codec="raw"))[0] == set()
    assert read(opened, [1])[0] == {1}


def drop_lengths(opened: StoreUnderTest, number: int) -> None:
    """As damage of its entry would."""
    index = opened.store._store.index
    record = index.get(chunk(number))
    assert record is not None
    index.apply(IndexChange(deletes=(chunk(number),)))
    index.apply(IndexChange(puts=((chunk(number), record),)))


def test_a_chunk_of_unknown_lengths_is_a_miss_and_can_be_stored_anew(
    opened: StoreUnderTest,
) -> None:
    put_durable(opened, [1, 2])
    forget_dram(opened, [1, 2])
    drop_lengths(opened, 1)
    assert read(opened, [1, 2])[0] == {2}
    wait_until(lambda: opened.store._store.pending(chunk(1)) is None)
    assert opened.stats().counters["quarantined_chunks"] == 1
    (ticket,) = put(opened, [1])
    assert ticket.outcome is PutOutcome.STORED
    assert ticket.durable is not None
    assert ticket.durable.result(PATIENCE_S) is Reason.UNSPECIFIED
    forget_dram(opened, [1])
    assert read(opened, [1, 2])[0] == {1, 2}


def test_damage_of_a_slice_is_found_and_the_chunk_leaves(opened: StoreUnderTest) -> None:
    put_durable(opened, [4, 5])
    forget_dram(opened, [4, 5])
    record = opened.store._store.index.get(chunk(4))
    assert record is not None
    start = record.extent.offset + geometry_of(4).slice_offsets[3]
    opened.devices[record.extent.device_index].media[start + lengths_of(4)[3] - 1] ^= 1
    assert read(opened, [4, 5])[0] == {5}
    wait_until(lambda: opened.store._store.index.get(chunk(4)) is None)
    assert opened.store._store.index.usage.entry_count(Table.LENGTHS) == 1


def test_deletion_takes_the_lengths_along(opened: StoreUnderTest) -> None:
    put_durable(opened, NUMBERS)
    assert opened.store._store.index.usage.entry_count(Table.LENGTHS) == len(NUMBERS)
    assert opened.store.delete(NAMESPACE, list(map(key, NUMBERS))).result(PATIENCE_S) == 12
    assert opened.store._store.index.usage.entry_count(Table.LENGTHS) == 0
    assert sum(device.used_bytes for device in opened.stats().devices) == 0


def test_full_devices_evict_chunks_of_all_classes(tmp_path: Path) -> None:
    """Whatever the classes of the chunks, old ones make way and new ones are found."""
    numbers = list(range(1, 241))
    with open_store(tmp_path, slabs_per_device=2, promote=False) as opened:
        for first in range(0, len(numbers), 12):
            put_durable(opened, numbers[first : first + 12])
        newest = numbers[-12:]
        forget_dram(opened, newest)
        assert read(opened, newest)[0] == set(newest)
        stats = opened.stats()
        assert stats.counters["evicted_chunks"] > 0
        used = sum(device.used_bytes for device in stats.devices)
        capacity = sum(device.capacity_bytes for device in stats.devices)
        assert used > 0.6 * capacity


def test_slices_that_no_copy_has_room_for_are_refused(opened: StoreUnderTest) -> None:
    large = replace(ENCODED, chunk_tokens=80)
    with pytest.raises(LayoutRefusedError, match="use a smaller chunk_tokens or a larger"):
        opened.store.layouts.register(large)
    opened.store.layouts.register(replace(large, codec="raw"))
    opened.store.layouts.register(replace(ENCODED, chunk_tokens=64))
