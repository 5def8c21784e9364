from benchmarks.tiering.tier import Tier
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.prefetch_plan import Watermarks


def test_what_does_not_fit_goes_and_sizes_change() -> None:
    tier: Tier[str] = Tier(LruPolicy(), 10)
    assert (tier.mean_bytes, len(tier)) == (1.0, 0)
    assert tier.put("a", 4) == tier.put("b", 6) == []
    assert tier.put("b", 7) == ["a"]
    assert ("a" in tier, tier.size("a"), tier.size("b"), tier.mean_bytes) == (False, 0, 7, 7.0)
    assert tier.put("c", 11) == ["b", "c"]
    tier.drop("c")
    assert len(tier) == 0


def test_watermarks_free_more_than_is_needed() -> None:
    tier: Tier[int] = Tier(LruPolicy(), 10, Watermarks(low_bytes=1, high_bytes=4))
    gone = [tier.put(key, 1) for key in range(10)]
    assert gone == [[]] * 9 + [[0, 1, 2, 3]]
