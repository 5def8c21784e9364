"""Many entries of lengths at once against one at a time."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.format.slice_lengths import PART_BYTES, SliceLengths, decode_part
from kvstored.format.slice_lengths_parts import damaged_parts
from kvstored_contract.limits import LAYERS_MAX

Entry = tuple[bytes, bytes]
LENGTHS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=LAYERS_MAX)


def parts_of(number: int, lengths: list[int]) -> list[Entry]:
    chunk = ChunkId.decode(number.to_bytes(48, "big"))
    return list(SliceLengths(lengths=tuple(lengths), header_checksum=number).parts(chunk))


def refused(entries: list[Entry]) -> list[int]:
    """What one at a time says."""
    places = []
    for place, (key, value) in enumerate(entries):
        try:
            decode_part(key, value)
        except FormatError:
            places.append(place)
    return places


def found(entries: list[Entry]) -> list[int]:
    return damaged_parts([key for key, _ in entries], [value for _, value in entries])


@given(st.lists(LENGTHS, max_size=6))
def test_no_sound_part_is_damaged(chunks: list[list[int]]) -> None:
    entries = [part for number, lengths in enumerate(chunks) for part in parts_of(number, lengths)]
    assert found(entries) == []


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_damages_its_part_only(seed: int) -> None:
    generator = random.Random(seed)
    entries = [part for number in range(10) for part in parts_of(number, [number + 1] * 70)]
    hit = sorted(generator.sample(range(len(entries)), 5))
    for place in hit:
        key, value = entries[place]
        changed = bytearray(key + value)
        changed[generator.randrange(len(changed))] ^= 1 << generator.randrange(8)
        entries[place] = bytes(changed[: len(key)]), bytes(changed[len(key) :])
    assert found(entries) == hit == refused(entries)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("number", [0, 1, 7, 8, 255])
@pytest.mark.parametrize("slice_count", [0, 1, 32, 33, LAYERS_MAX, LAYERS_MAX + 1, 65_535])
def test_parts_that_no_chunk_has_are_damaged_whatever_their_checksum(
    version: int, number: int, slice_count: int
) -> None:
    key = bytes(48) + bytes([number])
    body = struct.pack("<HH", version, slice_count) + bytes(PART_BYTES - 12)
    entry = key, body + struct.pack("<Q", checksum(key + body))
    assert found([entry]) == refused([entry])
