import pytest

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.lru import LruPolicy
from tests.kvstored.tiers.policy.eviction_conformance import (
    CHUNKS,
    LeastRecentlyUsedConformance,
    group_of,
)


class PlainTier:
    """An owner that keeps nothing of its own."""

    def __init__(self) -> None:
        self.policy: LruPolicy[ChunkId] = LruPolicy()

    def enter(self, number: int) -> None:
        self.policy.insert(CHUNKS[number], group_of(number))

    def leave(self, number: int) -> None:
        self.policy.remove(CHUNKS[number])


class TestLruPolicy(LeastRecentlyUsedConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier()

    def test_a_key_may_move_to_another_group(self) -> None:
        policy: LruPolicy[str] = LruPolicy()
        policy.insert("a", 1)
        policy.insert("b", 2)
        policy.insert("a", 2)
        assert list(policy.victims(1)) == []
        assert list(policy.victims(2)) == ["b", "a"]
