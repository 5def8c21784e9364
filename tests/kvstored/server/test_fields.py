"""Validation of request fields."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from kvstored.server import fields
from kvstored.server.errors import RefusedError
from kvstored.store.read.placement import PlacementError
from kvstored.store.read.plan import Order
from kvstored.tiers.chunks.requests import NewChunk
from kvstored_contract.board import board_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import (
    BLOCKS_PER_CALL_MAX,
    CHUNKS_PER_CALL_MAX,
    NOTE_BYTES_MAX,
    NOTES_BYTES_PER_CALL_MAX,
    SLICE_LENGTHS_PER_CALL_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2

KEY = b"k" * 32
LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 16),) * 3, chunk_tokens=4
)


def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(RefusedError) as info:
        call()
    assert str(info.value)
    return info.value.reason


def test_keys() -> None:
    assert fields.checked_keys([KEY, KEY]) == (KEY, KEY)
    assert reason_of(lambda: fields.checked_keys([])) is Reason.FIELD_INVALID
    assert reason_of(lambda: fields.checked_keys([KEY, KEY[:-1]])) is Reason.FIELD_INVALID
    many = [KEY] * (CHUNKS_PER_CALL_MAX + 1)
    assert reason_of(lambda: fields.checked_keys(many)) is Reason.LIMIT_EXCEEDED
    assert len(fields.checked_keys(many[1:])) == CHUNKS_PER_CALL_MAX


def test_new_chunks() -> None:
    chunk = store_pb2.PutChunk(key=KEY, token_count=4, stripe=9)
    child = store_pb2.PutChunk(key=KEY, parent_key=KEY, token_count=1)
    assert fields.new_chunks([chunk, child], layout=LAYOUT) == (
        NewChunk(KEY, b"", 4, 9),
        NewChunk(KEY, KEY, 1, 0),
    )


@pytest.mark.parametrize(
    "chunk",
    [
        store_pb2.PutChunk(key=KEY, token_count=0),
        store_pb2.PutChunk(key=KEY, token_count=5),
        store_pb2.PutChunk(key=KEY + b"x", token_count=1),
        store_pb2.PutChunk(key=KEY, parent_key=b"x", token_count=1),
    ],
)
def test_bad_new_chunks(chunk: store_pb2.PutChunk) -> None:
    assert reason_of(lambda: fields.new_chunks([chunk], layout=LAYOUT)) is Reason.FIELD_INVALID


def test_enum_values() -> None:
    assert fields.enum_value(Order, 1, "order") is Order.TAIL_FIRST
    for value in (0, 4, -1):
        with pytest.raises(RefusedError, match="order is"):
            fields.enum_value(Order, value, "order")


def test_bounded() -> None:
    assert fields.bounded(3, "x", least=3, most=3) == 3
    for value in (2, 4):
        with pytest.raises(RefusedError, match="x is"):
            fields.bounded(value, "x", least=3, most=3)


def test_placement_inside_the_arena() -> None:
    message = common_pb2.Placement(base=64, layer_stride=64, chunk_stride=192)
    placement = fields.checked_placement(
        message, arena_bytes=64 + 2 * 192, chunk_count=2, slice_bytes=[64] * 3
    )
    assert placement.base == 64
    with pytest.raises(PlacementError):
        fields.checked_placement(
            message, arena_bytes=64 + 2 * 192 - 1, chunk_count=2, slice_bytes=[64] * 3
        )


def test_too_many_blocks() -> None:
    message = common_pb2.Placement(block_offsets=[0] * (BLOCKS_PER_CALL_MAX + 1))
    assert (
        reason_of(
            lambda: fields.checked_placement(
                message, arena_bytes=4096, chunk_count=1, slice_bytes=[64]
            )
        )
        is Reason.LIMIT_EXCEEDED
    )


def test_board_range() -> None:
    size = board_bytes(chunk_count=2, layer_count=3)
    assert fields.board_range(
        8, arena_bytes=8 + size, chunk_count=2, layer_count=3, has_lengths=False
    ) == (8, 8 + size)
    for offset in (9, 16):
        assert (
            reason_of(
                partial(
                    fields.board_range,
                    offset,
                    arena_bytes=8 + size,
                    chunk_count=2,
                    layer_count=3,
                    has_lengths=False,
                )
            )
            is Reason.ARENA_RANGE
        )


def test_layers() -> None:
    fields.check_layers(0, 3, LAYOUT)
    fields.check_layers(2, 1, LAYOUT)
    for first, count in ((0, 0), (0, 4), (3, 1), (2, 2)):
        with pytest.raises(RefusedError, match="layers"):
            fields.check_layers(first, count, LAYOUT)


def test_sequence_names() -> None:
    assert fields.sequence_name("é" * 100) == "é" * 100
    for name in ("", "é" * 101):
        with pytest.raises(RefusedError, match="sequence name"):
            fields.sequence_name(name)


ENCODED = replace(LAYOUT, codec="zstd")


def test_encoded_chunks_come_with_the_lengths_of_their_slices() -> None:
    chunk = store_pb2.PutChunk(key=KEY, token_count=1, slice_bytes=[64, 1, 63])
    (new,) = fields.new_chunks([chunk], layout=ENCODED)
    assert new.slice_bytes == (64, 1, 63)
    assert new.geometry(ENCODED).slice_bytes == (64, 1, 63)
    assert fields.new_chunks([store_pb2.PutChunk(key=KEY, token_count=1)], layout=LAYOUT)[
        0
    ].geometry(LAYOUT).slice_bytes == (16, 16, 16)


@pytest.mark.parametrize(
    ("layout", "lengths"),
    [
        (ENCODED, []),
        (ENCODED, [64, 64]),
        (ENCODED, [64, 64, 65]),
        (ENCODED, [64, 0, 64]),
        (ENCODED, [64, 64, 2**32 - 1]),
        (LAYOUT, [64, 64, 64]),
    ],
)
def test_bad_lengths_of_slices(layout: StateLayout, lengths: list[int]) -> None:
    chunk = store_pb2.PutChunk(key=KEY, token_count=4, slice_bytes=lengths)
    assert reason_of(lambda: fields.new_chunks([chunk], layout=layout)) is Reason.FIELD_INVALID


def put_of_lengths(*counts: int) -> list[store_pb2.PutChunk]:
    return [store_pb2.PutChunk(key=KEY, token_count=1, slice_bytes=[1] * count) for count in counts]


@pytest.mark.parametrize("layout", [ENCODED, LAYOUT])
def test_a_put_of_any_number_of_lengths_held_up_the_event_loop(layout: StateLayout) -> None:
    half = SLICE_LENGTHS_PER_CALL_MAX // 2
    with pytest.raises(RefusedError, match="put fewer chunks at once") as info:
        fields.new_chunks(put_of_lengths(half, half, 1), layout=layout)
    assert info.value.reason is Reason.LIMIT_EXCEEDED
    most = replace(ENCODED, layers=ENCODED.layers[:1] * 256)
    chunks = put_of_lengths(*[256] * (SLICE_LENGTHS_PER_CALL_MAX // 256))
    assert len(fields.new_chunks(chunks, layout=most)) == len(chunks)


def test_bounds_of_lengths_were_computed_for_every_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    known = StateLayout.slice_bytes

    def slice_bytes(layout: StateLayout, layer: int, token_count: int | None = None) -> int:
        asked.append(layer)
        return known(layout, layer, token_count)

    monkeypatch.setattr(StateLayout, "slice_bytes", slice_bytes)
    fields.new_chunks(put_of_lengths(3, 3, 3, 3), layout=ENCODED)
    assert asked == [0, 1, 2]


def test_the_board_of_an_encoded_read_has_lengths() -> None:
    size = board_bytes(chunk_count=2, layer_count=3, has_lengths=True)
    found = fields.board_range(0, arena_bytes=size, chunk_count=2, layer_count=3, has_lengths=True)
    assert found == (0, size)
    with pytest.raises(RefusedError, match="the board ends"):
        fields.board_range(0, arena_bytes=size - 8, chunk_count=2, layer_count=3, has_lengths=True)


def test_notes_of_a_put_are_bounded() -> None:
    def put_of_notes(*lengths: int) -> tuple[NewChunk, ...]:
        return fields.new_chunks(
            [store_pb2.PutChunk(key=KEY, token_count=1, note=bytes(length)) for length in lengths],
            layout=LAYOUT,
        )

    (new,) = put_of_notes(NOTE_BYTES_MAX)
    assert len(new.note) == NOTE_BYTES_MAX
    assert reason_of(lambda: put_of_notes(NOTE_BYTES_MAX + 1)) is Reason.LIMIT_EXCEEDED
    count = NOTES_BYTES_PER_CALL_MAX // NOTE_BYTES_MAX
    put_of_notes(*[NOTE_BYTES_MAX] * count)
    assert reason_of(lambda: put_of_notes(*[NOTE_BYTES_MAX] * count, 1)) is Reason.LIMIT_EXCEEDED
