import numpy as np
import pytest

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.tiers.policy.retention import (
    Retention,
    TableRetention,
    make_retention,
    make_table_retention,
)
from kvstored.tiers.policy.table_lru import TableLookAhead, TableLru
from tests.kvstored.tiers.policy.eviction_conformance import EvictionConformance, PlainTier
from tests.kvstored.tiers.policy.test_table_lru import GEOMETRY


class TestEveryKind(EvictionConformance):
    @pytest.fixture(params=list(Retention))
    def tier(self, request: pytest.FixtureRequest) -> PlainTier:
        return PlainTier(make_retention(request.param))


@pytest.mark.parametrize("kind", list(Retention))
def test_hints_count_where_the_name_says_so(kind: Retention) -> None:
    policy: EvictionPolicy[str] = make_retention(kind)
    for key in "ab":
        policy.insert(key, 1)
    policy.hint({"a": 1})
    is_hinted = kind in {Retention.LOOK_AHEAD, Retention.LOOK_AHEAD_DENSITY}
    assert policy.is_queued("a") == is_hinted
    assert next(policy.victims()) == ("b" if is_hinted else "a")


def test_devices_have_policies_of_their_own() -> None:
    table = ChunkTable(GEOMETRY, generator=np.random.default_rng(1))

    def group_of(_: ChunkId) -> None:
        return None

    lru = make_table_retention(TableRetention.LRU, table, group_of)
    assert isinstance(lru, TableLru)
    assert not lru.is_queued(ChunkId(b"n" * 16, b"k" * 32))
    look_ahead = make_table_retention(TableRetention.LOOK_AHEAD, table, group_of)
    assert isinstance(look_ahead, TableLookAhead)
