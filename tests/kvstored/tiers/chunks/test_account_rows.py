"""Rows of the table by namespace, and what tiers start with."""

import numpy as np
import pytest

from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId, namespace_id
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.tiers.chunks.account_rows import AccountRows
from kvstored.tiers.chunks.accounts import device_shares
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy import use_order
from kvstored.tiers.policy.retention import TableRetention
from kvstored.tiers.policy.shares import OTHERS
from kvstored.tiers.policy.table_lru import TableLru

KIB = 1024
GEOMETRY = SlabGeometry(1024 * KIB, (2,), 0, 4 * KIB)
NAMES = ("a", "b", "x", "y")
A, B, X, Y = map(namespace_id, NAMES)
SMALL, LARGE = 4 * KIB, 8 * KIB


def chunk(number: int) -> ChunkId:
    """Of a, b, x and y in turn."""
    return ChunkId((A, B, X, Y)[number % 4], number.to_bytes(32, "big"))


@pytest.fixture
def table() -> ChunkTable:
    """40 chunks in the order of their numbers; every third in the larger class."""
    table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
    for number in range(40):
        is_large = number % 3 == 0
        size = LARGE if is_large else SMALL
        slab, position = int(is_large), number // 3 if is_large else number
        first = GEOMETRY.extent(0, slab, position, size)
        table.insert(chunk(number), Extent(0, first.offset, size))
    return table


def numbers(chunks: list[ChunkId]) -> list[int]:
    return [int.from_bytes(one.key, "big") for one in chunks]


@pytest.mark.parametrize("queue_rows", [1, 32768])
def test_each_account_has_its_own_rows_in_their_order(
    table: ChunkTable, monkeypatch: pytest.MonkeyPatch, queue_rows: int
) -> None:
    monkeypatch.setattr(use_order, "QUEUE_ROWS", queue_rows)
    monkeypatch.setattr(use_order, "SAMPLE_STEP", 1)
    named = (A, B)
    orders = {name: TableLru(AccountRows(table, name, named)) for name in (A, B, OTHERS)}
    orders[A].touch([chunk(0)])
    expected = {
        A: [*range(4, 40, 4), 0],
        B: list(range(1, 40, 4)),
        OTHERS: [number for number in range(40) if number % 4 > 1],
    }
    for name, order in orders.items():
        assert numbers(list(order.victims())) == expected[name]
        larger = [number for number in expected[name] if number % 3 == 0]
        assert numbers(list(order.victims(LARGE))) == larger


def test_a_tier_starts_with_what_is_there(table: ChunkTable) -> None:
    limits = [NamespaceLimits(name=name) for name in ("a", "b")]
    use = device_shares(table, TableRetention.LRU, limits).use
    sizes = [LARGE if number % 3 == 0 else SMALL for number in range(40)]
    assert use.used_bytes(A) == sum(sizes[0::4])
    assert use.used_bytes(B) == sum(sizes[1::4])
    assert use.used_bytes(OTHERS) == sum(sizes[2::4]) + sum(sizes[3::4])
    assert device_shares(table, TableRetention.LRU, []).use.used_bytes(OTHERS) == sum(sizes)
