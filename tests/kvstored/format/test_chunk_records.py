"""Many records at once against one at a time."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.chunk_record import RECORD_BYTES, ChunkRecord
from kvstored.format.chunk_records import decode_many
from kvstored.format.errors import FormatError
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId

U64 = st.integers(0, 2**64 - 1)
RECORDS = st.builds(
    ChunkRecord,
    extent=st.builds(Extent, st.integers(0, 2**16 - 1), U64, U64),
    layout_id=st.binary(min_size=32, max_size=32),
    token_count=st.integers(0, 2**32 - 1),
    epoch=U64,
    stamp=U64,
    header_checksum=U64,
)


def identity(number: int) -> bytes:
    return number.to_bytes(48, "big")


@given(records=st.lists(RECORDS, max_size=12))
def test_sound_records_are_those_of_single_ones(records: list[ChunkRecord]) -> None:
    keys = [identity(number) for number in range(len(records))]
    values = [record.encode(ChunkId.decode(key)) for key, record in zip(keys, records, strict=True)]
    found = decode_many(keys, values)
    assert found.damaged_keys == []
    assert [row.tobytes() for row in found.identities] == keys
    extents = zip(
        found.devices.tolist(), found.offsets.tolist(), found.byte_counts.tolist(), strict=True
    )
    assert [Extent(*extent) for extent in extents] == [record.extent for record in records]
    assert found.stamps.tolist() == [record.stamp for record in records]


def sound_value(key: bytes) -> bytes:
    return ChunkRecord(
        extent=Extent(1, 2, 3),
        layout_id=b"l" * 32,
        token_count=4,
        epoch=5,
        stamp=int.from_bytes(key, "big"),
        header_checksum=6,
    ).encode(ChunkId.decode(key))


@pytest.mark.parametrize("seed", range(8))
def test_damage_costs_only_the_records_that_have_it(seed: int) -> None:
    generator = random.Random(seed)
    keys = [identity(number) for number in range(20)]
    values = [bytearray(sound_value(key)) for key in keys]
    damaged = sorted(generator.sample(range(20), 6))
    for number in damaged:
        values[number][generator.randrange(RECORD_BYTES)] ^= 1 << generator.randrange(8)
    values[damaged[0]] = values[damaged[0]][:-1]
    keys[damaged[1]] = b"short"
    found = decode_many(keys, [bytes(value) for value in values])
    assert sorted(found.damaged_keys) == sorted(keys[number] for number in damaged)
    assert found.stamps.tolist() == [number for number in range(20) if number not in damaged]


def test_another_version_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("kvstored.format.chunk_record.VERSION", 2)
        value = sound_value(identity(3))
    with pytest.raises(FormatError, match="version 2"):
        ChunkRecord.decode(ChunkId.decode(identity(3)), value)
    assert decode_many([identity(3)], [value]).damaged_keys == [identity(3)]
