import random

import numpy as np
import pytest

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.tiers.chunks.nvme_victims import class_bytes_in
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.table_look_ahead import TableLookAhead
from tests.kvstored.tiers.policy.eviction_conformance import (
    CHUNKS,
    GROUPS,
    KEY_COUNT,
    LeastRecentlyUsedConformance,
    PlainTier,
    group_of,
)
from tests.kvstored.tiers.policy.test_table_lru import GEOMETRY, TableTier


class LookAheadTable(TableTier):
    """A table whose chunks may be queued."""

    policy: TableLookAhead  # type: ignore[assignment]

    def __init__(self) -> None:
        self.table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
        self.policy = TableLookAhead(self.table, lambda chunk: class_bytes_in(self.table, chunk))


@pytest.fixture
def tier() -> LookAheadTable:
    return LookAheadTable()


class TestWithoutHints(LeastRecentlyUsedConformance):
    @pytest.fixture
    def tier(self) -> LookAheadTable:
        return LookAheadTable()


@pytest.mark.parametrize("seed", range(30))
def test_it_decides_as_look_ahead_over_least_recently_used(tier: LookAheadTable, seed: int) -> None:
    dice = random.Random(seed)
    model = PlainTier(LookAheadPolicy(LruPolicy()))
    for _ in range(200):
        number = dice.randrange(KEY_COUNT)
        match dice.choice(["enter", "enter", "touch", "touch", "leave", "hint", "hint", "pass"]):
            case "enter":
                tier.enter(number)
                model.enter(number)
            case "leave":
                tier.leave(number)
                model.leave(number)
            case "touch":
                tier.policy.touch([CHUNKS[number]])
                model.policy.touch([CHUNKS[number]])
            case "hint":
                places = {CHUNKS[number]: dice.choice([None, dice.randrange(100)])}
                tier.policy.hint(places)
                model.policy.hint(places)
            case _:
                next(tier.policy.victims(), None)
        for group in (None, *GROUPS):
            assert list(tier.policy.victims(group)) == list(model.policy.victims(group))
        assert [tier.policy.is_queued(chunk) for chunk in CHUNKS] == [
            model.policy.is_queued(chunk) for chunk in CHUNKS
        ]


def test_queued_chunks_are_passed_once(tier: LookAheadTable) -> None:
    """The oldest chunks are queued: who asks for victims again does not walk over them again."""
    for number in range(KEY_COUNT):
        tier.enter(number)
    tier.policy.hint({CHUNKS[number]: number for number in range(8)})
    times = [tier.table.columns.time(row) for row in range(KEY_COUNT)]
    assert next(tier.policy.victims()) == CHUNKS[8]
    assert next(tier.policy.victims()) == CHUNKS[8]
    assert [tier.table.columns.time(row) for row in range(8)] > times[:8]
    assert not tier.policy._passed


def test_it_remembers_hinted_chunks_only(tier: LookAheadTable) -> None:
    for number in range(KEY_COUNT):
        tier.enter(number)
    absent = ChunkId(b"n" * 16, b"a" * 32)
    tier.policy.hint({CHUNKS[3]: 1, absent: 2})
    assert (len(tier.policy._places), len(tier.policy._queued)) == (2, 1)
    tier.policy.hint({CHUNKS[3]: None, absent: None})
    assert (len(tier.policy._places), len(tier.policy._queued)) == (0, 0)
    assert group_of(3) == class_bytes_in(tier.table, CHUNKS[3])
