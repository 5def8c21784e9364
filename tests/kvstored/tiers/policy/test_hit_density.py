import random

import pytest

from kvstored.tiers.policy import hit_density
from kvstored.tiers.policy.hit_density import HitDensityPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.protocol import EvictionPolicy
from tests.kvstored.tiers.policy.eviction_conformance import (
    EvictionConformance,
    LeastRecentlyUsedConformance,
    PlainTier,
)


class TestBeforeItLearned(LeastRecentlyUsedConformance):
    @pytest.fixture
    def tier(self) -> PlainTier:
        return PlainTier(HitDensityPolicy())


class TestWhileItLearns(EvictionConformance):
    @pytest.fixture
    def tier(self, monkeypatch: pytest.MonkeyPatch) -> PlainTier:
        monkeypatch.setattr(hit_density, "LOOK_EVENTS", 2)
        return PlainTier(HitDensityPolicy())


def hits(policy: EvictionPolicy[int], uses: list[int], capacity: int) -> int:
    stored: set[int] = set()
    count = 0
    for key in uses:
        if key in stored:
            count += 1
            policy.touch([key])
        else:
            policy.insert(key, 1)
            stored.add(key)
        while len(stored) > capacity:
            victim = next(policy.victims())
            stored.remove(victim)
            policy.remove(victim)
    return count


def test_keys_that_are_used_again_outlive_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 60 keys used at random, between as many again that never return, 50 fit."""
    monkeypatch.setattr(hit_density, "LOOK_EVENTS", 200)
    dice = random.Random(1)
    uses = [key for number in range(4000) for key in (dice.randrange(60), 1000 + number)]
    learned = hits(HitDensityPolicy(), uses, 50)
    monkeypatch.setattr(hit_density, "LOOK_EVENTS", 10**9)
    as_lru = hits(HitDensityPolicy(), uses, 50)
    assert as_lru < 0.4 * 4000
    assert learned > 0.6 * 4000


def test_memory_of_what_left_is_bounded() -> None:
    policy: HitDensityPolicy[int] = HitDensityPolicy()
    hits(policy, list(range(1000)), 10)
    assert len(policy._gone) <= 12


def test_keys_that_return_once_outlive_those_that_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is used again after 40 others, and then never; 50 of 80 in between fit."""
    monkeypatch.setattr(hit_density, "LOOK_EVENTS", 100)
    uses = [key for number in range(2000) for key in (number, number - 40)]
    assert hits(LruPolicy(), uses, 50) == 0
    assert hits(HitDensityPolicy(), uses, 50) > 1200
