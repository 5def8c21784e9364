import pytest

from kvstored.tiers.policy.lru import LruPolicy
from tests.kvstored.tiers.policy.eviction_conformance import (
    PlainTier,
    WholeSequencesConformance,
)


class TestLruPolicy(WholeSequencesConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(LruPolicy())

    def test_a_key_may_move_to_another_group(self) -> None:
        policy: LruPolicy[str] = LruPolicy()
        policy.insert("a", 1)
        policy.insert("b", 2)
        policy.insert("a", 2)
        assert list(policy.victims(1)) == []
        assert list(policy.victims(2)) == ["b", "a"]
