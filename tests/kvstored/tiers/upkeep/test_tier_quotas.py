from dataclasses import replace

import pytest

from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.shares import NO_QUOTA, Quota, Quotas, TierUse
from kvstored.tiers.upkeep.tier_quotas import QuotaError, SharedTier, TierQuotas

TEAM = NamespaceLimits(name="team", dram=Quota(limit_bytes=40), devices=Quota(guaranteed_bytes=10))
OTHER = NamespaceLimits(name="other", dram=Quota(guaranteed_bytes=50), ttl_s=5.0)


@pytest.fixture
def uses() -> tuple[TierUse, TierUse]:
    both = (TEAM, OTHER)
    return (
        TierUse(Quotas({one.namespace_id: one.dram for one in both})),
        TierUse(Quotas({one.namespace_id: one.devices for one in both})),
    )


@pytest.fixture
def quotas(uses: tuple[TierUse, TierUse]) -> TierQuotas:
    dram, devices = uses
    return TierQuotas(
        (TEAM, OTHER), 60.0, dram=SharedTier(dram, 100), devices=SharedTier(devices, 1000)
    )


def test_a_change_reaches_both_tiers(quotas: TierQuotas, uses: tuple[TierUse, TierUse]) -> None:
    after = replace(TEAM, dram=Quota(limit_bytes=20), devices=Quota(limit_bytes=300), ttl_s=9.0)
    quotas.change(after)
    dram, devices = uses
    assert dram.quotas.of(TEAM.namespace_id) == Quota(limit_bytes=20)
    assert devices.quotas.of(TEAM.namespace_id) == Quota(limit_bytes=300)
    assert dram.quotas.of(OTHER.namespace_id) == OTHER.dram
    assert quotas.of("team") == replace(after, ttl_s=None)
    assert [one.name for one in quotas.now] == ["team", "other"]


def test_only_what_had_a_quota_changes(quotas: TierQuotas) -> None:
    with pytest.raises(QuotaError, match="restart"):
        quotas.change(NamespaceLimits(name="new"))


def test_shares_must_fit(quotas: TierQuotas, uses: tuple[TierUse, TierUse]) -> None:
    before = [use.quotas for use in uses]
    for change in (
        replace(TEAM, dram=Quota(guaranteed_bytes=41)),
        replace(TEAM, devices=Quota(guaranteed_bytes=901)),
    ):
        with pytest.raises(QuotaError, match="lower one"):
            quotas.change(change)
    assert [use.quotas for use in uses] == before
    assert quotas.now == (TEAM, OTHER)


def test_a_reload_says_what_it_cannot_take(quotas: TierQuotas) -> None:
    team = replace(TEAM, dram=Quota(limit_bytes=30), ttl_s=1.0)
    late = quotas.reload((team, NamespaceLimits(name="new")), None)
    assert late == ["the new quota of 'new'", "ttl_s of 'team'", "quotas.ttl_s"]
    assert quotas.of("team").dram == Quota(limit_bytes=30)
    # What the configuration does not name any more has no quota.
    assert (quotas.of("other").dram, quotas.of("other").devices) == (NO_QUOTA, NO_QUOTA)
    assert quotas.reload((TEAM, OTHER), 60.0) == []
    assert quotas.now == (TEAM, OTHER)
