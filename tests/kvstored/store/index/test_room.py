"""How many chunks fit into the index's map: pure arithmetic, and LMDB's own word on it.

Fails when ``IndexRoom.left_chunks`` forgets the other tables (seen: another half of the room is
surely enough), and when ``IndexRoom.was_full`` learns nothing (seen: room for 2,097,152 chunks
where 150,131 fitted).
"""

import os
from collections import deque
from pathlib import Path
from random import Random

import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import Extent
from kvstored.format.identity import CHUNK_ID_BYTES, NAMESPACE_ID_BYTES, ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.store.index.environment import DATA_FILE
from kvstored.store.index.failure import IndexFullError
from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.room import (
    ENTRY_BYTES,
    LENGTHS_ENTRY_BYTES,
    RESERVE_BYTES_MAX,
    IndexRoom,
    chunk_entries,
)
from tests.support import labs
from tests.support.seeds import seed

MIB = 1024 * 1024
LARGE = 1024 * MIB
CHUNKS_IN_LARGE = (LARGE - RESERVE_BYTES_MAX) // ENTRY_BYTES
RECORD = ChunkRecord(
    extent=Extent(0, 8192, 4096),
    layout_id=bytes(32),
    token_count=16,
    epoch=1,
    stamp=1,
    header_checksum=0,
)


FLOOR = CHUNKS_IN_LARGE // 16


def test_half_of_the_room_is_surely_for_chunks() -> None:
    room = IndexRoom(LARGE)
    assert room.is_surely_enough(CHUNKS_IN_LARGE // 2 - 1)
    assert not room.is_surely_enough(CHUNKS_IN_LARGE // 2 + 1)
    assert room.left_chunks(CHUNKS_IN_LARGE // 2 - 1, 10 * LARGE) == 1
    assert room.left_chunks(CHUNKS_IN_LARGE // 2 + 1, 10 * LARGE) == -1
    assert room.others_bytes_max == (LARGE - RESERVE_BYTES_MAX) // 2


def test_other_tables_take_room() -> None:
    room = IndexRoom(LARGE)
    assert room.left_chunks(CHUNKS_IN_LARGE, 0) == 0
    assert room.left_chunks(CHUNKS_IN_LARGE - 11, 10 * ENTRY_BYTES) == 1
    assert room.left_chunks(CHUNKS_IN_LARGE, 10 * ENTRY_BYTES) == -10


def test_lengths_of_slices_take_room() -> None:
    room = IndexRoom(LARGE)
    entries = 96 * LENGTHS_ENTRY_BYTES // ENTRY_BYTES
    assert room.left_chunks(CHUNKS_IN_LARGE, 0, 96) == -entries
    assert room.is_surely_enough(CHUNKS_IN_LARGE // 2 - 1 - entries, 96)
    assert not room.is_surely_enough(CHUNKS_IN_LARGE // 2 + 1 - entries, 96)
    room.was_full(160_000, 0, 96)
    assert room.left_chunks(0, 0) == (160_000 + entries) * 15 // 16


def test_a_quarter_of_a_small_map_is_room() -> None:
    assert IndexRoom(16 * MIB).left_chunks(0, 0) == 16 * MIB // 4 // ENTRY_BYTES


def test_a_map_that_was_full_earlier_than_thought_gets_fewer_chunks() -> None:
    room = IndexRoom(LARGE)
    room.was_full(160_000, 0)
    assert room.left_chunks(0, 0) == 150_000
    room.was_full(CHUNKS_IN_LARGE, 0)
    assert room.left_chunks(0, 0) == 150_000


def test_what_other_tables_took_of_a_full_map_is_room_when_they_give_it_back() -> None:
    room = IndexRoom(LARGE)
    room.was_full(320_000, 320_000 * ENTRY_BYTES)
    assert room.left_chunks(0, 320_000 * ENTRY_BYTES) == 280_000
    assert room.left_chunks(0, 0) == 600_000


def test_some_chunks_are_allowed_however_often_the_map_was_full() -> None:
    room = IndexRoom(LARGE)
    for count in (FLOOR, 1, 0):
        room.was_full(count, 0)
    assert room.left_chunks(0, 0) == FLOOR
    assert room.left_chunks(0, 10 * LARGE) == FLOOR
    assert not room.is_surely_enough(FLOOR)


def test_the_floor_was_for_chunks_whatever_their_lengths_took() -> None:
    """So a map that was full stayed so, with nothing evicted."""
    room = IndexRoom(LARGE)
    room.was_full(0, 0)
    entries = 96 * LENGTHS_ENTRY_BYTES // ENTRY_BYTES
    assert room.left_chunks(FLOOR - entries, 10 * LARGE, 96) == 0
    assert room.left_chunks(FLOOR, 0, 96) == -entries


def change_of(random: Random, old: deque[ChunkId], *, group: int, is_short: bool) -> IndexChange:
    deletes = tuple(old.popleft() for _ in range(group)) if is_short else ()
    encoded = [random.randbytes(CHUNK_ID_BYTES) for _ in range(group)]
    news = [ChunkId(one[:NAMESPACE_ID_BYTES], one[NAMESPACE_ID_BYTES:]) for one in encoded]
    old.extend(news)
    return IndexChange(deletes=deletes, puts=tuple((new, RECORD) for new in news))


@labs.INDEX_ROOMS.first(
    ("map_bytes", "group"),
    [(MIB, 16), (16 * MIB, 256), (160 * MIB, 2000)],
    name=lambda case: f"{case[0] // MIB} MiB",
)
def test_a_map_that_is_kept_from_being_short_is_never_full(
    tmp_path: Path, map_bytes: int, group: int
) -> None:
    """Chunks go and come at random, several times as many as there is room for."""
    random, chunks = Random(seed()), deque[ChunkId]()
    index = Index.open(tmp_path / "index", map_bytes=map_bytes)
    try:
        for _ in range(8 * map_bytes // 4 // ENTRY_BYTES // group):
            index.apply(change_of(random, chunks, group=group, is_short=index.usage.is_short))
        assert index.usage.is_short
    finally:
        index.close()


def test_a_full_map_makes_the_index_short(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MIB)
    try:
        random, chunks = Random(seed()), deque[ChunkId]()
        whole = change_of(random, chunks, group=MIB // ENTRY_BYTES, is_short=False)
        index.apply(IndexChange(puts=whole.puts[:100]))
        assert not index.usage.is_short
        too_many = change_of(random, chunks, group=MIB // 100, is_short=False)
        with pytest.raises(IndexFullError, match=os.fspath(tmp_path)):
            index.apply(too_many)
        assert index.usage.is_short
        index.apply(IndexChange(deletes=tuple(chunk for chunk, _ in whole.puts[:50])))
        assert not index.usage.is_short
    finally:
        index.close()


def test_a_map_without_a_page_left_could_not_even_delete(tmp_path: Path) -> None:
    """Bug: a map that was made as small as its file had no page for the copies of a deletion, so
    that the index stayed full for good."""
    random, chunks = Random(seed()), deque[ChunkId]()
    path = tmp_path / "index"
    index = Index.open(path, map_bytes=16 * MIB)
    index.apply(change_of(random, chunks, group=8 * MIB // ENTRY_BYTES, is_short=False))
    index.close()
    index = Index.open(path, map_bytes=(path / DATA_FILE).stat().st_size)
    try:
        assert index.usage.is_short
        while index.usage.is_short:
            index.apply(IndexChange(deletes=tuple(chunks.popleft() for _ in range(8))))
        index.apply(change_of(random, chunks, group=1, is_short=False))
    finally:
        index.close()


def test_a_sequence_that_finds_no_room_takes_none_from_the_chunks(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MIB)
    try:
        random, chunks = Random(seed()), deque[ChunkId]()
        one = change_of(random, chunks, group=1, is_short=False)
        left_chunks = index.usage.left_chunks
        long = SequenceRecord(layout_id=bytes(32), keys=(bytes(32),) * 65_536)
        for puts in ((), one.puts):
            with pytest.raises(IndexFullError):
                index.apply(IndexChange(puts=puts, sequence_puts=((bytes(16), "long", long),)))
        assert index.usage.left_chunks == left_chunks
        assert not index.usage.is_short
    finally:
        index.close()


def test_room_of_the_other_tables(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MIB)
    try:
        left_bytes, left_chunks = index.usage.left_others_bytes, index.usage.left_chunks
        assert 0 < left_bytes <= MIB // 8
        record = SequenceRecord(layout_id=bytes(32), keys=(bytes(32),) * 2048)
        index.apply(IndexChange(sequence_puts=((bytes(16), "long", record),)))
        taken_bytes = left_bytes - index.usage.left_others_bytes
        assert taken_bytes >= 2048 * 32
        assert left_chunks - index.usage.left_chunks == pytest.approx(
            taken_bytes / ENTRY_BYTES, abs=1
        )
    finally:
        index.close()


def test_pages_that_nobody_has_taken(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MIB)
    try:
        unused_bytes = index.usage.unused_bytes
        assert MIB // 2 < unused_bytes < MIB
        random, chunks = Random(seed()), deque[ChunkId]()
        index.apply(change_of(random, chunks, group=300, is_short=False))
        assert index.usage.unused_bytes <= unused_bytes - 300 * 136
    finally:
        index.close()


def test_a_chunk_with_lengths_of_slices_takes_more_than_one_entry() -> None:
    assert chunk_entries(0) == 1
    assert 1 < chunk_entries(1) < chunk_entries(2)
