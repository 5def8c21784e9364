import struct
from dataclasses import replace

import pytest
from hypothesis import given

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.extent_header import SLICES_MAX, ExtentHeader, SliceSum, page_checksum
from kvstored.format.geometry import HEADER_BYTES
from kvstored.format.identity import ChunkId
from kvstored_contract.limits import LAYERS_MAX
from tests.kvstored.format.damage import check_every_bit_is_vouched_for
from tests.kvstored.format.strategies import extent_headers

HEADER = ExtentHeader(
    device_id=b"d" * 16,
    offset=1 << 20,
    chunk=ChunkId(b"n" * 16, b"k" * 32),
    parent_key=b"p" * 32,
    layout_id=b"l" * 32,
    class_bytes=16_384,
    epoch=2,
    stamp=99,
    token_count=64,
    slices=(SliceSum(4096, 5), SliceSum(0, 0), SliceSum(4097, 6)),
)


@given(extent_headers)
def test_round_trip(header: ExtentHeader) -> None:
    page = header.encode()
    assert len(page) == HEADER_BYTES
    assert ExtentHeader.decode(page) == header


def test_every_bit_is_vouched_for() -> None:
    check_every_bit_is_vouched_for(HEADER.encode(), ExtentHeader.decode)


def test_a_header_tells_the_lengths_and_whether_they_are_its_own() -> None:
    encoded = replace(HEADER, is_encoded=True)
    assert ExtentHeader.decode(encoded.encode()).is_encoded
    assert not ExtentHeader.decode(HEADER.encode()).is_encoded
    assert HEADER.slice_bytes == (4096, 0, 4097)


def test_a_header_has_room_for_every_layer_of_a_layout() -> None:
    assert SLICES_MAX >= LAYERS_MAX


def test_page_checksum_is_that_of_the_rest_of_the_page() -> None:
    page = HEADER.encode()
    assert page_checksum(page) == checksum(page[: HEADER_BYTES - 8])


def test_blank_page_is_no_header() -> None:
    with pytest.raises(FormatError, match="no extent header"):
        ExtentHeader.decode(bytes(HEADER_BYTES))


def test_other_version_is_named() -> None:
    page = bytearray(HEADER.encode())
    struct.pack_into("<H", page, 8, 3)
    with pytest.raises(FormatError, match="version 3, expected 1"):
        ExtentHeader.decode(bytes(page))


def test_more_slices_than_fit_are_refused() -> None:
    page = bytearray(HEADER.encode())
    struct.pack_into("<H", page, 10, SLICES_MAX + 1)
    struct.pack_into("<Q", page, HEADER_BYTES - 8, checksum(bytes(page[: HEADER_BYTES - 8])))
    with pytest.raises(FormatError, match=f"with {SLICES_MAX + 1} slices"):
        ExtentHeader.decode(bytes(page))


def test_short_page_is_refused() -> None:
    with pytest.raises(FormatError, match="bytes, expected 4096"):
        ExtentHeader.decode(b"KVSEXTNT")
