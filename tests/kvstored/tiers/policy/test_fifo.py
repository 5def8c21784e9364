import pytest

from kvstored.tiers.policy.fifo import FifoPolicy
from tests.kvstored.tiers.policy.eviction_conformance import EvictionConformance, PlainTier


class TestFifoPolicy(EvictionConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(FifoPolicy())

    def test_uses_and_entering_again_change_nothing(self) -> None:
        policy: FifoPolicy[str] = FifoPolicy()
        for key in "abc":
            policy.insert(key, 1)
        policy.touch(["a"])
        policy.insert("a", 1)
        policy.hint({"a": 0})
        assert list(policy.victims()) == ["a", "b", "c"]

    def test_a_key_of_another_group_is_new_there(self) -> None:
        policy: FifoPolicy[str] = FifoPolicy()
        for key in "ab":
            policy.insert(key, 1)
        policy.insert("a", 2)
        assert list(policy.victims()) == ["b", "a"]
