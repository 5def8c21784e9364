import struct
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from kvstored.format.chunk_record import RECORD_BYTES, ChunkRecord
from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths import PART_BYTES, PART_KEY_BYTES, SliceLengths, part_key
from kvstored.store.index import batches as index_batches
from kvstored.store.index.entry import Table
from kvstored.store.index.index import (
    DATA_FILE,
    Index,
    IndexChange,
    IndexDamagedError,
    IndexFailure,
)
from kvstored.store.index.probe import probe
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.store.index_stores import (
    LAYOUT_ID,
    MAP_BYTES,
    NAMESPACE_ID,
    chunk_id,
    extent_at,
    record_at,
)
from tests.support.raw_index import raw_write

LAYOUT = StateLayout(model="m", dtype="float32", layers=(LayerState(StateKind.KV, 64),))
OTHER_NAMESPACE_ID = b"o" * 16

# LMDB's pages: header with flags, then where each node lies; a node's header, then its key.
FLAGS_OFFSET = 10
BRANCH_FLAG = 1
PAGE_HEADER_BYTES = 16
NODE_HEADER_BYTES = 8
KEY_LENGTH_OFFSET = 6


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    opened = Index.open(tmp_path / "index", map_bytes=MAP_BYTES)
    yield opened
    opened.close()


def put(index: Index, *numbers: int) -> None:
    index.apply(
        IndexChange(
            puts=tuple((chunk_id(n), record_at(extent_at(n), stamp=n + 1)) for n in numbers)
        )
    )


def test_walks_in_many_batches_see_everything_once(index: Index, monkeypatch) -> None:
    put(index, *range(50))
    sequence = SequenceRecord(layout_id=LAYOUT_ID, keys=(b"k" * 32,) * 10)
    names = [f"{number:03}" for number in range(20)]
    index.apply(IndexChange(sequence_puts=tuple((NAMESPACE_ID, name, sequence) for name in names)))
    monkeypatch.setattr(index_batches, "WALK_ENTRIES", 7)
    assert [chunk for chunk, _ in index.walks.records()] == [chunk_id(n) for n in range(50)]
    monkeypatch.setattr(index_batches, "WALK_BYTES", 500)
    assert index.walks.sequences(NAMESPACE_ID) == names
    monkeypatch.setattr(index_batches, "WALK_ENTRIES", 25)
    assert len(list(index.walks.records())) == 50


def test_a_walk_may_be_interleaved_with_changes(index: Index, monkeypatch) -> None:
    put(index, *range(10))
    monkeypatch.setattr(index_batches, "WALK_ENTRIES", 2)
    seen = []
    for chunk, _ in index.walks.records():
        seen.append(chunk)
        index.apply(IndexChange(deletes=(chunk,)))
    assert seen == [chunk_id(n) for n in range(10)]
    assert index.usage.chunk_count == 0


def test_a_tree_that_leads_in_a_circle_is_noticed(index: Index, monkeypatch) -> None:
    put(index, 1, 2)
    circle = [(chunk_id(n).encode(), b"") for n in (1, 2, 1)]
    monkeypatch.setattr(index.walks, "_batch", lambda table, start: (circle, False))
    with pytest.raises(IndexFailure, match=r"CHUNKS of the index .* is out of order"):
        list(index.walks.entries())


def test_a_table_that_has_fewer_entries_than_it_claims_is_noticed(
    index: Index, monkeypatch
) -> None:
    put(index, 1, 2)
    monkeypatch.setattr(index.walks, "_batch", lambda table, start: ([], True))
    with pytest.raises(IndexFailure, match="has 0 entries but claims 2"):
        list(index.walks.damaged_entries())


@pytest.mark.parametrize("scan_entries", [1, 3, 50, 1000])
def test_batches_of_the_chunk_table_hold_everything_once(
    index: Index, monkeypatch, scan_entries: int
) -> None:
    monkeypatch.setattr(index_batches, "SCAN_ENTRIES", scan_entries)
    assert list(index.walks.chunk_batches()) == []
    put(index, *range(50))
    batches = list(index.walks.chunk_batches())
    assert all(len(keys) == len(values) <= scan_entries for keys, values in batches)
    assert [key for keys, _ in batches for key in keys] == [chunk_id(n).encode() for n in range(50)]
    values = [value for _, batch in batches for value in batch]
    records = [index.get(chunk_id(n)) for n in range(50)]
    assert values == [record.encode(chunk_id(n)) for n, record in enumerate(records) if record]


@pytest.mark.parametrize("scan_entries", [2, 100])
@pytest.mark.parametrize("numbers", [(1, 3, 2), (1, 2, 1), (1, 1)])
def test_batches_out_of_order_are_noticed(
    index: Index, monkeypatch, scan_entries: int, numbers: tuple[int, ...]
) -> None:
    put(index, 1, 2, 3)
    ((keys, values),) = index.walks.chunk_batches()
    stored = dict(zip(keys, values, strict=True))
    circle = [(key, stored[key]) for key in (chunk_id(n).encode() for n in numbers)]

    def circling(cursor: object, count: int) -> list[tuple[bytes, bytes]]:
        taken, circle[:] = circle[:count], circle[count:]
        return taken

    monkeypatch.setattr(index_batches, "SCAN_ENTRIES", scan_entries)
    monkeypatch.setattr(index_batches, "islice", circling)
    with pytest.raises(IndexDamagedError, match=r"CHUNKS of the index .* (out of order|claims 3)"):
        list(index.walks.chunk_batches())


@pytest.mark.parametrize(
    ("key", "value"), [(chunk_id(2).encode(), b"short"), (b"short", bytes(RECORD_BYTES))]
)
def test_an_entry_of_another_length_is_damage_of_its_page(
    index: Index, key: bytes, value: bytes
) -> None:
    """Deleting it would make LMDB move its neighbours by the wrong length."""
    put(index, 1, 2, 3)
    with raw_write(index, Table.CHUNKS) as transaction:
        transaction.put(key, value)
    with pytest.raises(IndexDamagedError, match="other lengths"):
        list(index.walks.chunk_batches())


def change_upper_key(path: Path, key_bytes: int, mask: int) -> None:
    """Changes a key on an upper page of the first tree with keys of this length.

    Look-ups go by it. The first key of such a page is empty; the second one leads to the
    second leaf. The byte is the last one of the chunk's identity.
    """
    data = bytearray((path / DATA_FILE).read_bytes())
    page_bytes = 4096
    for start in range(2 * page_bytes, len(data), page_bytes):
        if struct.unpack_from("<H", data, start + FLAGS_OFFSET)[0] != BRANCH_FLAG:
            continue
        (second,) = struct.unpack_from("<H", data, start + PAGE_HEADER_BYTES + 2)
        node = start + second
        if struct.unpack_from("<H", data, node + KEY_LENGTH_OFFSET)[0] == key_bytes:
            data[node + NODE_HEADER_BYTES + CHUNK_ID_BYTES - 1] ^= mask
            break
    (path / DATA_FILE).write_bytes(data)


@pytest.mark.parametrize("mask", [1, 3])
def test_an_entry_that_look_ups_do_not_find_is_damage(index: Index, mask: int) -> None:
    """The keys on the upper pages of the tree, by which look-ups go, are not met by a walk."""
    put(index, *range(100))
    path = index.path
    index.close()
    change_upper_key(path, CHUNK_ID_BYTES, mask)
    damaged = Index.open(path, map_bytes=MAP_BYTES)
    missing = [number for number in range(100) if damaged.get(chunk_id(number)) is None]
    assert missing
    with pytest.raises(IndexDamagedError, match="not found by their keys"):
        list(damaged.walks.chunk_batches())
    damaged.close()


def put_encoded(index: Index, *numbers: int) -> None:
    """In one transaction: others would leave older copies of their pages in the file."""
    puts = tuple((chunk_id(n), record_at(extent_at(n), stamp=n + 1)) for n in numbers)
    lengths = tuple(
        (chunk, SliceLengths(lengths=(4096,), header_checksum=record.header_checksum))
        for chunk, record in puts
    )
    index.apply(IndexChange(puts=puts, lengths=lengths))


def test_lengths_that_look_ups_do_not_find_were_taken_for_sound(index: Index) -> None:
    """Reads would have put intact chunks into quarantine, instead of a rebuild that keeps them."""
    put_encoded(index, *range(100))
    path = index.path
    index.close()
    assert probe(path) == 0
    change_upper_key(path, PART_KEY_BYTES, 3)
    damaged = Index.open(path, map_bytes=MAP_BYTES, readonly=True)
    records = list(damaged.walks.records())
    assert (len(records), None in damaged.lengths(records)) == (100, True)
    damaged.close()
    with pytest.raises(IndexDamagedError, match="not found by their keys"):
        probe(path)


@pytest.mark.parametrize("byte_count", [PART_BYTES - 1, PART_BYTES + 8])
def test_lengths_in_an_entry_of_another_length_were_taken_for_one_damaged_value(
    index: Index, byte_count: int
) -> None:
    """Deleting the chunk would have moved the neighbours of the entry by the wrong length."""
    put_encoded(index, 1, 2, 3)
    with raw_write(index, Table.LENGTHS) as transaction:
        transaction.put(part_key(chunk_id(2), 0), bytes(byte_count))
    index.close()
    with pytest.raises(IndexDamagedError, match="other lengths"):
        probe(index.path)


def test_one_damaged_value_of_lengths_is_no_damage_of_the_table(index: Index) -> None:
    put_encoded(index, 1, 2, 3)
    with raw_write(index, Table.LENGTHS) as transaction:
        transaction.put(part_key(chunk_id(2), 0), bytes(PART_BYTES))
    index.close()
    assert probe(index.path) == 1


def test_batches_that_are_fewer_than_the_table_claims_are_noticed(
    index: Index, monkeypatch
) -> None:
    put(index, 1, 2)
    monkeypatch.setattr(index_batches, "islice", lambda cursor, count: [])
    with pytest.raises(IndexDamagedError, match="has 0 entries but claims 2"):
        list(index.walks.chunk_batches())


def ordered(chunks: Iterable[ChunkId]) -> list[ChunkId]:
    return sorted(chunks, key=ChunkId.encode)


def test_a_chunk_of_many_was_found_by_looking_at_all(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: `kvstored inspect` of a key went through the whole index, and ended at its deadline."""
    namespaces = [bytes([first]) * 16 for first in (0, 7, 255)]
    keys = [sha256(bytes([n])).digest() for n in range(200)]
    chunks = [ChunkId(namespace, key) for namespace in namespaces for key in keys]
    index.apply(
        IndexChange(
            puts=tuple(
                (chunk, record_at(extent_at(n), stamp=n + 1)) for n, chunk in enumerate(chunks)
            )
        )
    )
    for digits in ("", keys[5].hex()[:1], keys[5].hex()[:3], keys[5].hex(), "0" * 64):
        wanted = ordered(chunk for chunk in chunks if chunk.key.hex().startswith(digits))
        found = [chunk for chunk, _ in index.walks.records_by_prefix(digits)]
        assert found == wanted
        for namespace in (*namespaces, b"n" * 16):
            of_one = [chunk for chunk, _ in index.walks.records_by_prefix(digits, namespace)]
            assert of_one == [chunk for chunk in wanted if chunk.namespace_id == namespace]
    monkeypatch.setattr(index_batches, "WALK_ENTRIES", 4)
    read = []
    decode = ChunkRecord.decode

    def counted(chunk: ChunkId, value: bytes) -> ChunkRecord:
        read.append(chunk)
        return decode(chunk, value)

    monkeypatch.setattr(ChunkRecord, "decode", counted)
    found = [chunk for chunk, _ in index.walks.records_by_prefix(keys[5].hex())]
    assert found == ordered(ChunkId(namespace, keys[5]) for namespace in namespaces)
    assert len(read) <= len(namespaces) * 4
