import io

import pytest

from kvstored.format.errors import FormatError
from kvstored.store.space import claim_stream
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.claim_stream import (
    PART_BYTES_MAX,
    ClaimWriter,
    PartKind,
    decode_damaged_keys,
    read_parts,
)
from tests.kvstored.store.space.test_claim_block import block, columns


def stream(*, with_end: bool = True) -> bytes:
    file = io.BytesIO()
    writer = ClaimWriter(file)
    writer.header(b"head")
    writer.claims(block(3))
    writer.damaged_keys([])
    writer.damaged_keys([b"", b"abc", b"k" * 511])
    writer.claims(block(2, seed=2))
    if with_end:
        writer.end()
    return file.getvalue()


def test_parts_come_back_in_order() -> None:
    parts = list(read_parts(io.BytesIO(stream() + b"behind the end")))
    assert [kind for kind, _ in parts] == [
        PartKind.HEADER,
        PartKind.CLAIMS,
        PartKind.DAMAGED_KEYS,
        PartKind.CLAIMS,
    ]
    assert parts[0][1] == b"head"
    assert columns(ClaimBlock.decode(parts[1][1])) == columns(block(3))
    assert decode_damaged_keys(parts[2][1]) == [b"", b"abc", b"k" * 511]


@pytest.mark.parametrize("byte_count", range(0, len(stream()), 7))
def test_a_stream_that_was_cut_off_is_never_whole(byte_count: int) -> None:
    with pytest.raises(FormatError, match=r"cut off|damaged part"):
        list(read_parts(io.BytesIO(stream()[:byte_count])))


@pytest.mark.parametrize("position", range(0, len(stream()), 5))
def test_a_changed_byte_is_noticed(position: int) -> None:
    data = bytearray(stream())
    data[position] ^= 0x10
    with pytest.raises(FormatError):
        list(read_parts(io.BytesIO(data)))


def test_a_part_that_is_missing_is_noticed() -> None:
    whole, first = stream(), io.BytesIO()
    ClaimWriter(first).header(b"head")
    claims = io.BytesIO()
    ClaimWriter(claims).claims(block(3))
    start = len(first.getvalue())
    without = whole[:start] + whole[start + len(claims.getvalue()) :]
    with pytest.raises(FormatError, match="another number"):
        list(read_parts(io.BytesIO(without)))


def test_an_unknown_part_and_one_that_is_too_long_are_refused() -> None:
    with pytest.raises(FormatError, match="unknown part"):
        list(read_parts(io.BytesIO(claim_stream._frame(b"WHAT", b""))))
    huge = b"CLMS" + (PART_BYTES_MAX + 1).to_bytes(4, "little") + bytes(8)
    with pytest.raises(FormatError, match="part of"):
        list(read_parts(io.BytesIO(huge)))
