import pytest

from benchmarks.tiering.belady import BeladyPolicy
from benchmarks.tiering.future import Future
from tests.kvstored.tiers.policy.eviction_conformance import (
    CHUNKS,
    EvictionConformance,
    PlainTier,
)


class TestBeladyPolicy(EvictionConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(BeladyPolicy(lambda chunk: CHUNKS.index(chunk) % 5))


def test_what_is_used_last_goes_first() -> None:
    future = Future("abcab")
    policy = BeladyPolicy(future.next_use)
    for key in "abc":
        future.passed(key)
        policy.insert(key, 1)
    policy.insert("d", 1)
    policy.hint({"c": 1})
    assert not policy.is_queued("c"), "hints tell nothing to who knows the future"
    # Neither c nor d is used again; then b, whose use comes after that of a.
    assert list(policy.victims()) == ["c", "d", "b", "a"]
    future.passed("a")
    policy.touch(["a", "unknown"])
    assert list(policy.victims()) == ["c", "d", "a", "b"]
