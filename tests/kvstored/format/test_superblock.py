import struct

import pytest
from hypothesis import given

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from tests.kvstored.format.damage import (
    check_every_bit_is_vouched_for,
    check_every_truncation_is_refused,
)
from tests.kvstored.format.strategies import superblocks

MIB = 1024 * 1024
SUPERBLOCK = Superblock(
    set_id=b"s" * 16,
    device_id=b"d" * 16,
    device_index=1,
    device_count=3,
    capacity_bytes=64 * MIB,
    slab_bytes=8 * MIB,
    epoch=7,
)


@given(superblocks)
def test_round_trip(superblock: Superblock) -> None:
    page = superblock.encode()
    assert len(page) == SUPERBLOCK_BYTES
    assert Superblock.decode(page) == superblock


def test_every_bit_is_vouched_for() -> None:
    check_every_bit_is_vouched_for(SUPERBLOCK.encode(), Superblock.decode)


def test_truncations_are_refused() -> None:
    check_every_truncation_is_refused(SUPERBLOCK.encode(), Superblock.decode)


def test_fields_lie_where_the_documentation_says() -> None:
    page = SUPERBLOCK.encode()
    assert page[:8] == b"KVSSUPER"
    assert struct.unpack_from("<HHH", page, 8) == (1, 1, 3)
    assert page[16:48] == b"s" * 16 + b"d" * 16
    assert struct.unpack_from("<QQQ", page, 48) == (64 * MIB, 8 * MIB, 7)
    assert struct.unpack_from("<Q", page, 4088) == (checksum(page[:4088]),)


def test_blank_page_is_no_superblock() -> None:
    with pytest.raises(FormatError, match="no superblock"):
        Superblock.decode(bytes(SUPERBLOCK_BYTES))


def test_other_version_is_named_even_when_its_checksum_is_elsewhere() -> None:
    page = bytearray(SUPERBLOCK.encode())
    struct.pack_into("<H", page, 8, 2)
    with pytest.raises(FormatError, match="version 2, expected 1"):
        Superblock.decode(bytes(page))


def test_slabs_of_no_bytes_are_refused() -> None:
    page = bytearray(SUPERBLOCK.encode())
    struct.pack_into("<Q", page, 56, 0)
    struct.pack_into("<Q", page, 4088, checksum(bytes(page[:4088])))
    with pytest.raises(FormatError, match="slabs of 0 bytes"):
        Superblock.decode(bytes(page))


def test_slabs_fit_between_the_copies() -> None:
    assert SUPERBLOCK.copy_offsets == (0, 64 * MIB - 4096)
    assert SUPERBLOCK.slab_count == 7
    assert SUPERBLOCK.slab_offset(0) == DATA_OFFSET
    assert SUPERBLOCK.slab_offset(6) + SUPERBLOCK.slab_bytes <= SUPERBLOCK.copy_offsets[1]


@given(superblocks)
def test_slab_count_is_the_largest_that_fits(superblock: Superblock) -> None:
    end = max(superblock.copy_offsets[1], DATA_OFFSET)
    assert superblock.slab_offset(superblock.slab_count) <= end
    assert superblock.slab_offset(superblock.slab_count + 1) > end
