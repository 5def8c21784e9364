import numpy as np
import pytest

from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.tiers.policy.table_lru import TableLru
from tests.kvstored.tiers.policy.eviction_conformance import (
    CHUNKS,
    KEY_COUNT,
    WholeSequencesConformance,
    group_of,
)

KIB = 1024
GEOMETRY = SlabGeometry(KEY_COUNT * 12 * KIB, (2,), 1024 * KIB, 4 * KIB)
"""A slab for each size class."""


class TableTier:
    """The table of chunks on the devices, as their owner uses it."""

    def __init__(self) -> None:
        self.table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
        self.policy = TableLru(self.table)

    def enter(self, number: int) -> None:
        position, slab = divmod(number, 2)
        extent = GEOMETRY.extent(0, slab, position, group_of(number))
        self.table.insert(CHUNKS[number], extent)
        self.policy.insert(CHUNKS[number], extent.byte_count)

    def leave(self, number: int) -> None:
        self.table.remove(CHUNKS[number])
        self.policy.remove(CHUNKS[number])


class TestTableLru(WholeSequencesConformance):
    @pytest.fixture
    def tier(self) -> TableTier:
        return TableTier()
