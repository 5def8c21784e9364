"""Where slices lie in the arena of a client of the store in memory, and what does not fit."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstored_client.testing.addresses import (
    check_put_placement,
    check_read_placement,
    fragments,
)
from kvstored_client.testing.refusal import RefusedError
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import BLOCKS_PER_CALL_MAX
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2

TOKENS = 16
LAYERS = (LayerState(StateKind.KV, 64), LayerState(StateKind.HIDDEN, 32))
RAW = StateLayout(model="m", dtype="f", layers=LAYERS, chunk_tokens=TOKENS)
ENCODED = StateLayout(model="m", dtype="f", layers=LAYERS, chunk_tokens=TOKENS, codec="zstd")
STRIDE = 4096
PLAIN = common_pb2.Placement(base=100, layer_stride=2 * STRIDE, chunk_stride=STRIDE)
BLOCKS = common_pb2.Placement(layer_stride=4 * STRIDE, block_offsets=[0, 4096, 8192, 12288])


def refused(reason: Reason, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **named)
    assert caught.value.reason is reason


def put_of(
    placement: common_pb2.Placement, *token_counts: int, slice_bytes: tuple[int, ...] = ()
) -> store_pb2.PutRequest:
    chunks = [
        store_pb2.PutChunk(token_count=count, slice_bytes=slice_bytes) for count in token_counts
    ]
    return store_pb2.PutRequest(chunks=chunks, source=placement)


def read_of(placement: common_pb2.Placement) -> store_pb2.ReadRequest:
    return store_pb2.ReadRequest(keys=[b"a", b"b"], layer_count=2, destination=placement)


def test_a_slice_lies_at_its_chunk_and_layer() -> None:
    found = fragments(PLAIN, chunk=1, layer=1, byte_count=7, chunk_count=2)
    assert found == [(100 + 2 * STRIDE + STRIDE, 7)]


def test_blocks_cut_a_slice_into_fragments() -> None:
    found = fragments(BLOCKS, chunk=1, layer=1, byte_count=512, chunk_count=2)
    assert found == [(4 * STRIDE + 8192, 256), (4 * STRIDE + 12288, 256)]


@pytest.mark.parametrize("placement", [PLAIN, BLOCKS])
def test_a_call_fits_to_the_last_byte(placement: common_pb2.Placement) -> None:
    size = LAYERS[1].token_bytes * TOKENS
    (*_, (start, byte_count)) = fragments(
        placement, chunk=1, layer=1, byte_count=size, chunk_count=2
    )
    arena_bytes = start + byte_count
    check_put_placement(put_of(placement, TOKENS, 8), RAW, arena_bytes=arena_bytes)
    check_read_placement(read_of(placement), RAW, arena_bytes=arena_bytes)
    for call, request in (
        (check_put_placement, put_of(placement, TOKENS, TOKENS)),
        (check_read_placement, read_of(placement)),
    ):
        refused(Reason.ARENA_RANGE, call, request, RAW, arena_bytes=arena_bytes - 1)


def blocks(count: int) -> common_pb2.Placement:
    return common_pb2.Placement(
        layer_stride=count * STRIDE, block_offsets=[number * STRIDE for number in range(count)]
    )


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        (blocks(3), Reason.ARENA_RANGE),
        (blocks(6), Reason.ARENA_RANGE),
        (blocks(32), Reason.ARENA_RANGE),
        (
            common_pb2.Placement(block_offsets=[0] * (BLOCKS_PER_CALL_MAX + 1)),
            Reason.LIMIT_EXCEEDED,
        ),
    ],
    ids=["not shared out", "not cut", "cut too small", "too many"],
)
def test_blocks_that_no_call_may_name(placement: common_pb2.Placement, reason: Reason) -> None:
    refused(reason, check_read_placement, read_of(placement), RAW, arena_bytes=1 << 30)


def test_every_chunk_of_a_put_can_be_cut() -> None:
    """The longest and the shortest of three chunks can, the third one cannot."""
    layout = StateLayout(
        model="m", dtype="f", layers=(LayerState(StateKind.KV, 258),), chunk_tokens=TOKENS
    )
    eights = blocks(24)
    check_put_placement(put_of(eights, 4, 8, 16), layout, arena_bytes=1 << 30)
    refused(
        Reason.ARENA_RANGE,
        check_put_placement,
        put_of(eights, 4, 9, 16),
        layout,
        arena_bytes=1 << 30,
    )


def test_encoded_slices_are_not_cut() -> None:
    lengths = (512, 256)
    plain = put_of(PLAIN, TOKENS, TOKENS, slice_bytes=lengths)
    check_put_placement(plain, ENCODED, arena_bytes=1 << 20)
    check_read_placement(read_of(PLAIN), ENCODED, arena_bytes=1 << 20)
    cut = put_of(BLOCKS, TOKENS, TOKENS, slice_bytes=lengths)
    refused(Reason.ARENA_RANGE, check_put_placement, cut, ENCODED, arena_bytes=1 << 20)
    refused(Reason.ARENA_RANGE, check_read_placement, read_of(BLOCKS), ENCODED, arena_bytes=1 << 20)
