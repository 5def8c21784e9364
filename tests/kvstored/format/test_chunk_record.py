import struct
from functools import partial

import pytest
from hypothesis import given

from kvstored.format.checksum import checksum
from kvstored.format.chunk_record import RECORD_BYTES, ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from tests.kvstored.format.damage import (
    check_every_bit_is_vouched_for,
    check_every_truncation_is_refused,
)
from tests.kvstored.format.strategies import chunk_ids, chunk_records

CHUNK = ChunkId(b"n" * 16, b"k" * 32)
RECORD = ChunkRecord(
    extent=Extent(1, 1 << 20, 8192),
    layout_id=b"l" * 32,
    token_count=64,
    epoch=2,
    stamp=3,
    header_checksum=4,
)


@given(chunk_ids, chunk_records)
def test_round_trip(chunk: ChunkId, record: ChunkRecord) -> None:
    value = record.encode(chunk)
    assert len(value) == RECORD_BYTES
    assert ChunkRecord.decode(chunk, value) == record


def test_every_bit_is_vouched_for() -> None:
    check_every_bit_is_vouched_for(RECORD.encode(CHUNK), partial(ChunkRecord.decode, CHUNK))


def test_truncations_are_refused() -> None:
    check_every_truncation_is_refused(RECORD.encode(CHUNK), partial(ChunkRecord.decode, CHUNK))


def test_record_of_another_namespace_is_refused() -> None:
    with pytest.raises(FormatError, match="checksum"):
        ChunkRecord.decode(ChunkId(b"m" * 16, CHUNK.key), RECORD.encode(CHUNK))


def test_other_version_is_named() -> None:
    body = bytearray(RECORD.encode(CHUNK)[:-8])
    struct.pack_into("<H", body, 0, 2)
    sealed = bytes(body) + struct.pack("<Q", checksum(CHUNK.encode() + body))
    with pytest.raises(FormatError, match="version 2, expected 1"):
        ChunkRecord.decode(CHUNK, sealed)
