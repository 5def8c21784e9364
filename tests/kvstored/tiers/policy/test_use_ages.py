import pytest

from kvstored.tiers.policy.use_ages import BUCKET_COUNT, UseAges, bucket_of


def test_buckets_grow_by_a_quarter_of_a_doubling() -> None:
    assert [bucket_of(age) for age in (0, 1, 2, 3, 4, 7, 8, 15)] == [0, 4, 6, 8, 9, 12, 12, 16]
    ages = range(5000)
    assert sorted(map(bucket_of, ages)) == [bucket_of(age) for age in ages]
    assert bucket_of(2**48 - 2) < BUCKET_COUNT


def test_before_anything_was_seen_the_oldest_is_the_worst() -> None:
    ages = UseAges()
    densities = [ages.density(2**power) for power in range(40)]
    assert densities == sorted(densities, reverse=True)


def test_what_returns_soon_is_worth_more_than_what_returns_late() -> None:
    soon, late, never = UseAges(), UseAges(), UseAges()
    for _ in range(100):
        soon.end(10, is_hit=True)
        late.end(1000, is_hit=True)
        never.end(1000, is_hit=False)
    for ages in (soon, late, never):
        ages.look()
    assert soon.density(5) == pytest.approx(1 / 5, rel=0.5)
    assert soon.density(5) > 50 * late.density(5) > never.density(5)
    # A key that is near its return is worth more than a young one.
    assert late.density(900) > 2 * late.density(10)


def test_what_was_seen_fades() -> None:
    ages = UseAges()
    for _ in range(10):
        ages.end(100, is_hit=True)
    for _ in range(100):
        ages.look()
    young = ages.density(0)
    assert young > ages.density(50) > ages.density(5000)


def test_hits_of_long_ago_do_not_count() -> None:
    ages = UseAges()
    for _ in range(100):
        ages.end(100, is_hit=True)
    for _ in range(300):
        ages.look()
    for _ in range(10):
        ages.end(100, is_hit=False)
    ages.look()
    assert ages.density(50) < 0.0001
