"""Rows of chunks; ``test_chunk_table`` holds them against a model."""

import subprocess
import sys

import numpy as np

from kvstored.format.identity import CHUNK_ID_BYTES, ChunkId
from kvstored.store.space.chunk_columns import SEGMENT_ROWS, UNUSED, ChunkColumns
from kvstored.store.space.slab_geometry import place_of


def chunk_id(number: int) -> ChunkId:
    return ChunkId(b"n" * 16, number.to_bytes(32, "big"))


def columns_of(count: int) -> ChunkColumns:
    """Chunks in so many slabs, used at 10, 11 and so on."""
    columns = ChunkColumns()
    identities = np.frombuffer(b"".join(chunk_id(n).encode() for n in range(count)), np.uint8)
    places = np.array([place_of(slab, 2) for slab in range(count)], np.uint64)
    columns.append(identities.reshape(count, -1), places, 10 + np.arange(count, dtype=np.uint64))
    return columns


def test_chunks_in_rows_end_with_the_last_row() -> None:
    columns = columns_of(3)
    assert columns.row_end == 3
    assert columns.chunks_in_rows(1, 9) == [chunk_id(1), chunk_id(2)]


def test_an_empty_row_is_taken_again() -> None:
    columns = columns_of(3)
    columns.give_back(1)
    assert (len(columns), columns.row_end, columns.time(1)) == (2, 3, UNUSED)
    assert columns.chunks_in_rows(0, 3) == [chunk_id(0), chunk_id(2)]
    assert columns.rows_in_slab(1) == []
    assert columns.places().tolist() == [place_of(0, 2), place_of(2, 2)]
    assert columns.take(chunk_id(7).encode()) == 1
    assert columns.take(chunk_id(8).encode()) == 3
    assert [columns.chunk(row) for row in (1, 3)] == [chunk_id(7), chunk_id(8)]


def test_a_row_says_what_lies_where() -> None:
    columns = columns_of(2)
    assert (columns.chunk(1), columns.slab(1), columns.time(1)) == (chunk_id(1), 1, 11)
    assert columns.rows_in_slab(1) == [1]


def test_a_part_of_the_segments_can_be_looked_through_for_a_slab() -> None:
    columns = columns_of(2)
    assert columns.rows_in_slab(1) == columns.rows_in_slab(1, range(4)) == [1]
    assert columns.rows_in_slab(1, range(1, 4)) == []


RESIDENT = """
import os
from kvstored.store.space.chunk_columns import Segment

def resident_bytes():
    pages = open("/proc/self/statm").read().split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")

before = resident_bytes()
segments = [Segment() for _ in range(16)]
made = resident_bytes()
segments[0].ids[:] = bytes([1]) * len(segments[0].ids)
print(made - before, resident_bytes() - made)
"""
"""In a process of its own: in this one memory of others may be used again."""


def test_rows_that_nobody_used_had_memory_for_their_identities() -> None:
    said = subprocess.run(
        (sys.executable, "-c", RESIDENT), capture_output=True, text=True, check=True
    ).stdout
    made_bytes, used_bytes = map(int, said.split())
    assert made_bytes < 16 * SEGMENT_ROWS * CHUNK_ID_BYTES / 2
    assert used_bytes > SEGMENT_ROWS * CHUNK_ID_BYTES / 2
