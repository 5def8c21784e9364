"""Parts of a large message that are the same message when they are merged."""

from typing import cast

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from kvstored.server.message_parts import message_parts
from kvstored_protos.v1 import common_pb2, store_pb2

PART = 64
GROUP = b"\x0b\x0c"
UNKNOWN = b"\xfa\x01" + bytes([100]) + bytes(100)
"""Field 31, which no message of the contract has."""


def parts_of(body: bytes, kind: type[Message]) -> list[bytes]:
    return list(message_parts(body, cast("Descriptor", kind.DESCRIPTOR), part_bytes=PART))


def merged(parts: list[bytes], kind: type[Message]) -> Message:
    message = kind()
    for part in parts:
        message.MergeFromString(part)
    return message


numbers = st.lists(st.integers(0, 2**64 - 1), max_size=60)
keys = st.lists(st.binary(max_size=100), max_size=12)


@given(keys=keys, offsets=numbers, base=st.integers(0, 2**64 - 1), deadline=st.integers(0, 2**31))
def test_a_read_is_the_same(
    keys: list[bytes], offsets: list[int], base: int, deadline: int
) -> None:
    request = store_pb2.ReadRequest(
        layout_id=b"l" * 32,
        keys=keys,
        destination=common_pb2.Placement(base=base, block_offsets=offsets, chunk_stride=7),
        deadline_ms=deadline,
    )
    body = request.SerializeToString()
    parts = parts_of(body, store_pb2.ReadRequest)
    assert merged(parts, store_pb2.ReadRequest) == request == request.FromString(body)
    # A key stays whole, and numbers end where the last one does.
    assert all(len(part) <= PART + max((32, *map(len, keys))) + 10 for part in parts)


@given(
    notes=st.lists(st.binary(max_size=200), max_size=6),
    lengths=st.lists(st.integers(0, 127), max_size=30),
)
def test_a_put_is_the_same(notes: list[bytes], lengths: list[int]) -> None:
    request = store_pb2.PutRequest(
        chunks=[
            store_pb2.PutChunk(key=b"k" * 32, slice_bytes=lengths, note=note) for note in notes
        ],
        source=common_pb2.Placement(base=1),
    )
    parts = parts_of(request.SerializeToString(), store_pb2.PutRequest)
    assert merged(parts, store_pb2.PutRequest) == request


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_numbers_of_a_fixed_size_are_not_cut(count: int) -> None:
    from kvstored.server.message_parts import _numbers

    value = bytes(range(8)) * count
    parts = list(_numbers(value, 60, 8))
    assert b"".join(parts) == value
    assert all(len(part) % 8 == 0 for part in parts)


def test_a_message_may_begin_with_a_long_field() -> None:
    offsets = [2**40] * 100
    request = store_pb2.ReadRequest(destination=common_pb2.Placement(block_offsets=offsets))
    body = request.SerializeToString()
    parts = list(message_parts(body, store_pb2.ReadRequest.DESCRIPTOR, part_bytes=200))
    assert max(map(len, parts)) > 128, "the length of a part takes two bytes"
    assert merged(parts, store_pb2.ReadRequest) == request


def test_long_items_of_a_list_were_one_part_together() -> None:
    """Bug: eight megabytes of long notes were parsed at once."""
    chunks = [store_pb2.PutChunk(key=b"k" * 32, note=bytes(2 * PART)) for _ in range(5)]
    request = store_pb2.PutRequest(chunks=chunks)
    parts = parts_of(request.SerializeToString(), store_pb2.PutRequest)
    assert len(parts) == len(chunks)
    assert merged(parts, store_pb2.PutRequest) == request


def test_what_the_contract_does_not_know_stays_whole() -> None:
    body = store_pb2.MatchRequest(lease_ms=1).SerializeToString() + UNKNOWN
    parts = parts_of(body, store_pb2.MatchRequest)
    assert b"".join(parts) == body
    assert merged(parts, store_pb2.MatchRequest).FromString(body) is not None


def test_an_item_that_is_all_numbers_is_refused() -> None:
    """Bug: eight megabytes of numbers in one chunk kept the interpreter for 140 ms."""
    chunk = store_pb2.PutChunk(key=b"k" * 32, slice_bytes=range(PART + 1))
    body = store_pb2.PutRequest(chunks=[chunk]).SerializeToString()
    with pytest.raises(DecodeError, match="more numbers than any may have"):
        parts_of(body, store_pb2.PutRequest)


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x05abc",
        b"\x09abc",
        b"\x0d" + b"ab",
        b"\x80",
        b"\x08" + b"\x80" * 10 + b"\x01",
        GROUP,
        b"\x0a\xff\xff\xff\xff\x7f",
    ],
)
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        parts_of(body, store_pb2.MatchRequest)


@given(st.binary(max_size=300))
def test_bytes_are_refused_or_give_what_protobuf_says(body: bytes) -> None:
    try:
        message = merged(parts_of(body, store_pb2.ReadRequest), store_pb2.ReadRequest)
    except DecodeError:
        return
    assert message == store_pb2.ReadRequest.FromString(body)
