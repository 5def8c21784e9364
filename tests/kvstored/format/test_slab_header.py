import struct

import pytest
from hypothesis import given

from kvstored.format.errors import FormatError
from kvstored.format.slab_header import SLAB_HEADER_BYTES, SlabHeader
from tests.kvstored.format.damage import (
    check_every_bit_is_vouched_for,
    check_every_truncation_is_refused,
)
from tests.kvstored.format.strategies import slab_headers

HEADER = SlabHeader(device_id=b"d" * 16, slab_index=5, class_bytes=12_288, epoch=3)


@given(slab_headers)
def test_round_trip(header: SlabHeader) -> None:
    page = header.encode()
    assert len(page) == SLAB_HEADER_BYTES
    assert SlabHeader.decode(page) == header


def test_every_bit_is_vouched_for() -> None:
    check_every_bit_is_vouched_for(HEADER.encode(), SlabHeader.decode)


def test_truncations_are_refused() -> None:
    check_every_truncation_is_refused(HEADER.encode(), SlabHeader.decode)


def test_blank_page_is_no_slab_header() -> None:
    with pytest.raises(FormatError, match="no slab header"):
        SlabHeader.decode(bytes(SLAB_HEADER_BYTES))


def test_other_version_is_named() -> None:
    page = bytearray(HEADER.encode())
    struct.pack_into("<H", page, 8, 9)
    with pytest.raises(FormatError, match="version 9, expected 1"):
        SlabHeader.decode(bytes(page))
