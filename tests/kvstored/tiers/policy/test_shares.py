from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.shares import NOBODY, OTHERS, Quota, TierShares

Key = tuple[bytes, int]
"""A chunk: its namespace and a number."""


def shares() -> TierShares[Key]:
    quotas = {
        b"sure": Quota(guaranteed_bytes=40),
        b"small": Quota(guaranteed_bytes=10, limit_bytes=30),
    }
    return TierShares.divided(quotas, lambda _: LookAheadPolicy(LruPolicy()), lambda key: key[0])


def used(divided: TierShares[Key], **bytes_of: int) -> TierShares[Key]:
    for name, byte_count in bytes_of.items():
        divided.use.add(name.encode(), byte_count)
    return divided


def test_namespaces_without_a_quota_share_one_account() -> None:
    use = used(shares(), one=5, two=7, sure=3).use
    assert (use.used_bytes(OTHERS), use.used_bytes(b"sure"), use.used_bytes(b"small")) == (12, 3, 0)
    use.add(b"one", -5)
    assert use.used_bytes(use.account(b"two")) == 7


def test_what_a_namespace_at_its_limit_has_to_give_up() -> None:
    use = used(shares(), small=28, sure=500).use
    assert use.excess_bytes(b"small", 2) == 0
    assert use.excess_bytes(b"small", 5) == 3
    assert use.excess_bytes(b"sure", 100) == 0
    assert use.excess_bytes(b"any", 100) == 0


def test_who_gives() -> None:
    use = used(shares(), small=28, sure=45, any=8).use
    assert use.givers(b"any", 1) == [b"small", OTHERS, b"sure"]
    assert use.givers(b"small", 5) == [b"small"]
    assert use.givers(NOBODY, 0) == [b"small", OTHERS, b"sure"]
    assert used(shares(), sure=40).use.givers(NOBODY, 0) == []


def test_nobody_takes_of_a_guaranteed_share() -> None:
    use = used(shares(), sure=45, any=6).use
    going = [(b"sure", 4), (b"sure", 4), (b"sure", 4), (b"any", 4), (b"any", 4), (b"any", 4)]
    assert use.may_go(b"small", going) == [True, True, False, True, True, False]
    assert use.may_go(b"any", going) == [True, True, False, True, True, True]
    assert use.may_go(b"sure", going) == [True, True, True, True, True, False]
    assert use.may_go(NOBODY, going) == [True, True, False, True, True, False]


def test_each_account_has_its_own_order_and_its_own_hints() -> None:
    divided = used(shares(), sure=60, any=50)
    keys = [(b"any", 1), (b"sure", 2), (b"other", 3), (b"sure", 4)]
    for key in keys:
        divided.policy.insert(key, 8)
    divided.policy.touch([keys[0], keys[1]])
    orders = [list(order) for order in divided.orders(b"any", 8, 1)]
    assert orders == [[keys[2], keys[0]], [keys[3], keys[1]]]
    divided.policy.hint({keys[3]: 1, keys[2]: 2})
    assert list(map(divided.policy.is_queued, keys)) == [False, False, True, True]
    assert list(divided.policy.victims(8)) == [keys[0], keys[2], keys[1], keys[3]]
    divided.policy.remove(keys[1])
    assert list(divided.policy.victims()) == [keys[0], keys[2], keys[3]]


def test_an_undivided_tier_is_that_of_its_policy() -> None:
    policy: LruPolicy[Key] = LruPolicy()
    tier = TierShares.undivided(policy)
    tier.use.add(b"any", 8)
    for number in range(3):
        tier.policy.insert((b"any", number), 8)
    tier.policy.touch([(b"any", 0)])
    (order,) = tier.orders(b"any", 8, 8)
    assert list(order) == list(policy.victims(8)) == [(b"any", 1), (b"any", 2), (b"any", 0)]


def test_without_quotas_all_may_go_whatever_is_counted() -> None:
    whole: TierShares[Key] = TierShares.undivided(LruPolicy())
    assert not whole.use.is_divided
    assert whole.use.givers(b"any", 5) == whole.use.givers(NOBODY, 5) == [OTHERS]
    assert shares().use.is_divided
