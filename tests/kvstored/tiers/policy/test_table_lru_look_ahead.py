import random
from itertools import islice

import numpy as np
import pytest

from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.tiers.chunks.nvme_victims import class_bytes_in
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.table_lru import TableLookAhead
from tests.kvstored.tiers.policy.eviction_conformance import (
    CHUNKS,
    GROUPS,
    KEY_COUNT,
    PlainTier,
    WholeSequencesConformance,
    chunk_id,
    group_of,
)
from tests.kvstored.tiers.policy.test_table_lru import GEOMETRY, TableTier
from tests.support.untraced import UNTRACED


class LookAheadTable(TableTier):
    """A table whose chunks may be queued."""

    policy: TableLookAhead  # type: ignore[assignment]

    def __init__(self) -> None:
        self.table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))
        self.policy = TableLookAhead(self.table, lambda chunk: class_bytes_in(self.table, chunk))


@pytest.fixture
def tier() -> LookAheadTable:
    return LookAheadTable()


class TestWithoutHints(WholeSequencesConformance):
    @pytest.fixture
    def tier(self) -> LookAheadTable:
        return LookAheadTable()


@UNTRACED
@pytest.mark.parametrize("seed", range(15))
def test_it_decides_as_look_ahead_over_least_recently_used(tier: LookAheadTable, seed: int) -> None:
    dice = random.Random(seed)
    model = PlainTier(LookAheadPolicy(LruPolicy()))
    for _ in range(200):
        number = dice.randrange(KEY_COUNT)
        match dice.choice(["enter", "touch", "together", "leave", "hint", "hint", "pass"]):
            case "enter":
                tier.enter(number)
                model.enter(number)
            case "leave":
                tier.leave(number)
                model.leave(number)
            case "touch":
                tier.policy.touch([CHUNKS[number]])
                model.policy.touch([CHUNKS[number]])
            case "together":
                used = [CHUNKS[one] for one in dice.sample(range(KEY_COUNT), 5)]
                tier.policy.touch(used, together=True)
                model.policy.touch(used, together=True)
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


class CountedTable(ChunkTable):
    """Counts the rows that a policy looked at."""

    looked_at = 0

    def use(self, row: int) -> tuple[ChunkId, int]:
        self.looked_at += 1
        return super().use(row)


WIDE = SlabGeometry(1024 * 8 * 1024, (2,), 0, 0)


@pytest.mark.parametrize("queued_count", [10, 1000])
def test_a_decision_walked_over_all_that_wait(queued_count: int) -> None:
    """Bug: where few did not wait, each decision looked at all who did, with the table locked."""
    table = CountedTable(WIDE, generator=np.random.default_rng(1))
    policy = TableLookAhead(table, lambda chunk: class_bytes_in(table, chunk))

    def enter(number: int) -> ChunkId:
        chunk = chunk_id(number)
        extent = Extent(0, number * 8 * 1024, 8 * 1024)
        table.insert(chunk, extent)
        policy.insert(chunk, extent.byte_count)
        return chunk

    waiting = [enter(number) for number in range(queued_count)]
    policy.hint({chunk: place for place, chunk in enumerate(waiting)})
    for number in range(queued_count, queued_count + 3):
        new = enter(number)
        policy.touch(waiting[:1])
        assert list(islice(policy.victims(), 4)) == [new, *waiting[:-4:-1]]
        table.remove(new)
        policy.remove(new)
    assert table.looked_at == 3


def test_what_leaves_the_queue_is_used_then(tier: LookAheadTable) -> None:
    for number in range(4):
        tier.enter(number)
    tier.policy.hint({CHUNKS[0]: 1, CHUNKS[1]: 2})
    tier.policy.touch([CHUNKS[0], CHUNKS[2]])
    tier.policy.hint({CHUNKS[0]: None})
    assert list(tier.policy.victims()) == [CHUNKS[number] for number in (3, 2, 0, 1)]


def test_it_remembers_hinted_chunks_only(tier: LookAheadTable) -> None:
    for number in range(KEY_COUNT):
        tier.enter(number)
    absent = ChunkId(b"n" * 16, b"a" * 32)
    tier.policy.hint({CHUNKS[3]: 1, absent: 2})
    assert (len(tier.policy._places), len(tier.policy._queued)) == (2, 1)
    assert [tier.policy.is_queued(CHUNKS[number]) for number in (2, 3)] == [False, True]
    tier.policy.hint({CHUNKS[3]: None, absent: None})
    assert (len(tier.policy._places), len(tier.policy._queued)) == (0, 0)
    assert group_of(3) == class_bytes_in(tier.table, CHUNKS[3])
