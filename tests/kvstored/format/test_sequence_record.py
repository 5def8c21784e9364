import dataclasses
import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.checksum import checksum
from kvstored.format.errors import FormatError
from kvstored.format.sequence_record import SequenceRecord, SequenceTail
from tests.kvstored.format.damage import (
    check_every_bit_is_vouched_for,
    check_every_truncation_is_refused,
)
from tests.kvstored.format.strategies import sequence_records

NAME = b"namespace chat-1"
RECORD = SequenceRecord(
    layout_id=b"l" * 32,
    keys=(b"a" * 32, b"b" * 32),
    dropped_chunks=4,
    tail=SequenceTail(key=b"t" * 32, token_count=9),
)


def resealed(body: bytes) -> bytes:
    return body + struct.pack("<Q", checksum(NAME + body))


@given(sequence_records, st.binary(max_size=100))
def test_round_trip(record: SequenceRecord, name_key: bytes) -> None:
    assert SequenceRecord.decode(name_key, record.encode(name_key)) == record


def test_every_bit_is_vouched_for() -> None:
    check_every_bit_is_vouched_for(RECORD.encode(NAME), partial(SequenceRecord.decode, NAME))


def test_truncations_are_refused() -> None:
    check_every_truncation_is_refused(RECORD.encode(NAME), partial(SequenceRecord.decode, NAME))


def test_record_of_another_sequence_is_refused() -> None:
    with pytest.raises(FormatError, match="checksum"):
        SequenceRecord.decode(b"another name", RECORD.encode(NAME))


def test_other_version_is_named() -> None:
    body = bytearray(RECORD.encode(NAME)[:-8])
    struct.pack_into("<H", body, 0, 3)
    with pytest.raises(FormatError, match="version 3, expected 1 or 2"):
        SequenceRecord.decode(NAME, resealed(bytes(body)))


def test_key_count_must_agree_with_the_length() -> None:
    body = RECORD.encode(NAME)[:-8]
    with pytest.raises(FormatError, match="with 2 keys"):
        SequenceRecord.decode(NAME, resealed(body + b"c" * 32))


def test_a_record_of_the_first_version_has_no_tail() -> None:
    fixed = struct.pack("<HxxI32sQ", 1, 2, b"l" * 32, 4)
    old = resealed(fixed + b"a" * 32 + b"b" * 32)
    record = SequenceRecord.decode(NAME, old)
    assert record == dataclasses.replace(RECORD, tail=None)
    assert SequenceRecord.decode(NAME, record.encode(NAME)) == record


def test_a_record_that_ends_within_the_tail_is_refused() -> None:
    fixed = struct.pack("<HxxI32sQ", 2, 0, b"l" * 32, 4)
    with pytest.raises(FormatError, match="with 0 keys"):
        SequenceRecord.decode(NAME, resealed(fixed + b"t" * 32))
