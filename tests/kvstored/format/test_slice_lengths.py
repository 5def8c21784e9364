import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import (
    PART_BYTES,
    PART_KEY_BYTES,
    PART_SLICES,
    SliceLengths,
    decode_part,
    join_parts,
    part_count,
    part_key,
)
from kvstored_contract.limits import LAYERS_MAX
from tests.kvstored.format.damage import check_every_bit_is_vouched_for
from tests.kvstored.format.strategies import chunk_ids, word32, word64

CHUNK = ChunkId(b"n" * 16, b"k" * 32)
SEVENTY = SliceLengths(lengths=tuple(range(1, 71)), header_checksum=7)

slice_lengths = st.builds(
    SliceLengths,
    lengths=st.lists(word32, min_size=1, max_size=LAYERS_MAX).map(tuple),
    header_checksum=word64,
)


@given(chunk_ids, slice_lengths)
def test_round_trip(chunk: ChunkId, lengths: SliceLengths) -> None:
    parts = list(lengths.parts(chunk))
    assert len(parts) == part_count(len(lengths.lengths))
    assert [key for key, _ in parts] == [part_key(chunk, n) for n in range(len(parts))]
    assert {(len(key), len(value)) for key, value in parts} == {(PART_KEY_BYTES, PART_BYTES)}
    assert join_parts(chunk, [value for _, value in parts]) == lengths


def test_every_bit_of_key_and_value_is_vouched_for() -> None:
    for key, value in SEVENTY.parts(CHUNK):
        check_every_bit_is_vouched_for(value, partial(decode_part, key))
        check_every_bit_is_vouched_for(key, partial(decode_part, value=value))


def test_a_part_tells_its_own_lengths() -> None:
    _, (key, value), last = SEVENTY.parts(CHUNK)
    part = decode_part(key, value)
    assert part.lengths == tuple(range(PART_SLICES + 1, 2 * PART_SLICES + 1))
    assert (part.slice_count, part.header_checksum) == (70, 7)
    assert decode_part(*last).lengths == tuple(range(65, 71))


def test_parts_that_are_missing_or_of_another_record_are_refused() -> None:
    values = [value for _, value in SEVENTY.parts(CHUNK)]
    with pytest.raises(FormatError, match="2 parts of the lengths of 70 slices"):
        join_parts(CHUNK, values[:2])
    with pytest.raises(FormatError, match="different chunks"):
        join_parts(CHUNK, [])
    others = SliceLengths(lengths=SEVENTY.lengths, header_checksum=8)
    with pytest.raises(FormatError, match="different chunks"):
        join_parts(CHUNK, [values[0], *[value for _, value in others.parts(CHUNK)][1:]])


@pytest.mark.parametrize("length", [0, PART_BYTES - 1, PART_BYTES + 1])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(FormatError, match=f"in {length} bytes"):
        decode_part(part_key(CHUNK, 0), bytes(length))


def summed(version: int, slice_count: int, number: int) -> tuple[bytes, bytes]:
    key = part_key(CHUNK, number)
    body = struct.pack("<HHQ", version, slice_count, 0) + bytes(4 * PART_SLICES)
    return key, body + struct.pack("<Q", checksum(key + body))


def test_other_version_is_named() -> None:
    with pytest.raises(FormatError, match="version 9, expected 1"):
        decode_part(*summed(9, 1, 0))


@pytest.mark.parametrize(("slice_count", "number"), [(0, 0), (32, 1), (LAYERS_MAX + 1, 0)])
def test_impossible_counts_are_refused(slice_count: int, number: int) -> None:
    with pytest.raises(FormatError, match=f"part {number} of the lengths of {slice_count} slices"):
        decode_part(*summed(1, slice_count, number))
