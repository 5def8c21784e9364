import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.identity import ChunkId
from kvstored.store.index.entry import (
    META_KEY,
    VERIFY,
    Table,
    decode_quarantine,
    encode_quarantine,
    quarantine_key,
    sequence_key,
    sequence_name,
)
from kvstored.store.index.meta import IndexMeta
from tests.kvstored.format.strategies import chunk_ids, chunk_records, ids, word64
from tests.kvstored.store.index_stores import NAMESPACE_ID, chunk_id, extent_at, meta, record_at

metas = st.builds(IndexMeta, set_id=ids, epoch=word64, clean=st.booleans())


@given(chunk_ids, chunk_records)
def test_quarantine_entry_round_trip(chunk: ChunkId, record: ChunkRecord) -> None:
    key, value = quarantine_key(record.extent), encode_quarantine(chunk, record)
    assert decode_quarantine(key, value) == (chunk, record)


def test_quarantine_entry_under_another_key_is_refused() -> None:
    value = encode_quarantine(chunk_id(1), record_at(extent_at(0)))
    with pytest.raises(FormatError, match="another extent"):
        decode_quarantine(quarantine_key(extent_at(1)), value)


def test_quarantine_keys_sort_by_device_then_offset() -> None:
    places = [extent_at(5, device=1), extent_at(300, device=0), extent_at(2, device=0)]
    by_key = sorted(places, key=quarantine_key)
    assert by_key == [places[2], places[1], places[0]]


@given(metas)
def test_meta_round_trip(value: IndexMeta) -> None:
    assert IndexMeta.decode(value.encode()) == value


def test_every_flipped_bit_of_meta_is_noticed() -> None:
    encoded = meta().encode()
    for bit in range(len(encoded) * 8):
        damaged = bytearray(encoded)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="checksum"):
            IndexMeta.decode(bytes(damaged))


def test_meta_of_wrong_length_or_version_is_refused(monkeypatch) -> None:
    with pytest.raises(FormatError, match="bytes"):
        IndexMeta.decode(meta().encode()[:-1])
    monkeypatch.setattr("kvstored.store.index.meta.VERSION", 2)
    newer = meta().encode()
    monkeypatch.undo()
    with pytest.raises(FormatError, match="version 2, expected 1"):
        IndexMeta.decode(newer)


@given(st.text(min_size=1, max_size=50))
def test_sequence_key_holds_the_name(name: str) -> None:
    key = sequence_key(NAMESPACE_ID, name)
    assert key.startswith(NAMESPACE_ID)
    assert sequence_name(key) == name


@pytest.mark.parametrize("name", ["", "x" * 201, "\u20ac" * 67])
def test_sequence_names_of_impossible_length_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200 bytes"):
        sequence_key(NAMESPACE_ID, name)


def test_sequence_key_that_is_not_text_is_damage() -> None:
    with pytest.raises(FormatError, match="not UTF-8"):
        sequence_name(NAMESPACE_ID + b"\xff\xfe")


@pytest.mark.parametrize("table", Table)
def test_every_table_recognises_garbage(table: Table) -> None:
    key = META_KEY if table is Table.META else b"k" * 40
    with pytest.raises(FormatError):
        VERIFY[table](key, b"garbage")
