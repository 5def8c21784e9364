"""An index of some chunks, as a service that stopped in order or not leaves it."""

from kvstored.store.index.index import Index, IndexChange
from kvstored.store.index.scan import Scanned
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.start.recover import geometry_of
from tests.kvstored.store.index_stores import (
    chunk_id,
    extent_at,
    memory_device_set,
    meta,
    record_at,
)

COUNT = 100
"""Chunks in the indexes here: two slabs full and a part of the third."""
PER_SLAB = 15


def extent_of(number: int):
    return extent_at(number % PER_SLAB, slab=number // PER_SLAB % 4, device=number // 60)


def ignore(_: Scanned) -> None:
    """Nobody wants to know."""


def table_of(numbers: range = range(COUNT)) -> ChunkTable:
    table = ChunkTable(geometry_of(memory_device_set()))
    for number in numbers:
        table.insert(chunk_id(number), extent_of(number))
    return table


def fill(index: Index, count: int = COUNT) -> None:
    index.apply(
        IndexChange(
            puts=tuple((chunk_id(n), record_at(extent_of(n), stamp=n)) for n in range(count)),
            meta=meta(),
        )
    )
