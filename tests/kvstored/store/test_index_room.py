"""How many chunks fit into the index's map: pure arithmetic, and LMDB's own word on it."""

import os
from collections import deque
from pathlib import Path
from random import Random

import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent import Extent
from kvstored.format.identity import CHUNK_ID_BYTES, NAMESPACE_ID_BYTES, ChunkId
from kvstored.store.index import Index, IndexChange
from kvstored.store.index_failure import IndexFullError
from kvstored.store.index_room import ENTRY_BYTES, RESERVE_BYTES_MAX, IndexRoom
from tests.faults.seeds import seed

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


def test_half_of_the_room_is_surely_for_chunks() -> None:
    room = IndexRoom(LARGE)
    assert room.is_surely_enough(CHUNKS_IN_LARGE // 2 - 1)
    assert not room.is_surely_enough(CHUNKS_IN_LARGE // 2 + 1)
    assert room.is_enough(CHUNKS_IN_LARGE // 2 - 1, others_bytes=10 * LARGE)
    assert not room.is_enough(CHUNKS_IN_LARGE // 2 + 1, others_bytes=10 * LARGE)


def test_other_tables_take_room() -> None:
    room = IndexRoom(LARGE)
    assert room.is_enough(CHUNKS_IN_LARGE - 1, others_bytes=0)
    assert not room.is_enough(CHUNKS_IN_LARGE + 1, others_bytes=0)
    assert room.is_enough(CHUNKS_IN_LARGE - 11, others_bytes=10 * ENTRY_BYTES)
    assert not room.is_enough(CHUNKS_IN_LARGE - 9, others_bytes=10 * ENTRY_BYTES)


def test_a_quarter_of_a_small_map_is_room() -> None:
    count = 16 * MIB // 4 // ENTRY_BYTES
    assert IndexRoom(16 * MIB).is_enough(count - 1, others_bytes=0)
    assert not IndexRoom(16 * MIB).is_enough(count + 1, others_bytes=0)


def test_a_map_that_was_full_earlier_than_thought_gets_fewer_chunks() -> None:
    room = IndexRoom(LARGE)
    room.was_full(1600)
    assert room.is_enough(1499, others_bytes=0)
    assert not room.is_enough(1500, others_bytes=0)
    room.was_full(CHUNKS_IN_LARGE)
    assert not room.is_enough(1500, others_bytes=0)


def change_of(random: Random, old: deque[ChunkId], *, group: int, is_short: bool) -> IndexChange:
    deletes = tuple(old.popleft() for _ in range(group)) if is_short else ()
    encoded = [random.randbytes(CHUNK_ID_BYTES) for _ in range(group)]
    news = [ChunkId(one[:NAMESPACE_ID_BYTES], one[NAMESPACE_ID_BYTES:]) for one in encoded]
    old.extend(news)
    return IndexChange(deletes=deletes, puts=tuple((new, RECORD) for new in news))


@pytest.mark.parametrize(("map_bytes", "group"), [(MIB, 16), (16 * MIB, 256), (300 * MIB, 2000)])
def test_a_map_that_is_kept_from_being_short_is_never_full(
    tmp_path: Path, map_bytes: int, group: int
) -> None:
    """Chunks go and come at random, several times as many as there is room for."""
    random, chunks = Random(seed()), deque[ChunkId]()
    index = Index.open(tmp_path / "index", map_bytes=map_bytes)
    try:
        for _ in range(8 * map_bytes // 4 // ENTRY_BYTES // group):
            index.apply(change_of(random, chunks, group=group, is_short=index.is_short))
        assert index.is_short
    finally:
        index.close()


def test_a_full_map_makes_the_index_short(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index", map_bytes=MIB)
    try:
        random, chunks = Random(seed()), deque[ChunkId]()
        whole = change_of(random, chunks, group=MIB // ENTRY_BYTES, is_short=False)
        index.apply(IndexChange(puts=whole.puts[:100]))
        assert not index.is_short
        too_many = change_of(random, chunks, group=MIB // 100, is_short=False)
        with pytest.raises(IndexFullError, match=os.fspath(tmp_path)):
            index.apply(too_many)
        assert index.is_short
        index.apply(IndexChange(deletes=tuple(chunk for chunk, _ in whole.puts[:50])))
        assert not index.is_short
    finally:
        index.close()
