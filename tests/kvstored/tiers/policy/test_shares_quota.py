import pytest

from kvstored.tiers.policy.shares import Quota, Quotas

QUOTAS = Quotas({"a": Quota(guaranteed_bytes=40), "b": Quota(guaranteed_bytes=10, limit_bytes=30)})


def test_the_furthest_above_its_share_gives_first() -> None:
    used = {"a": 45, "b": 20, "c": 8, "d": 0}
    assert list(QUOTAS.givers(used, "d", 1)) == ["b", "c", "a"]


def test_nobody_gives_of_its_share_but_the_one_that_takes() -> None:
    used = {"a": 40, "b": 10, "c": 1}
    assert list(QUOTAS.givers(used, "a", 5)) == ["c", "a"]
    assert list(QUOTAS.givers(used, "c", 5)) == ["c"]
    assert list(QUOTAS.givers({"a": 40}, "c", 5)) == []


def test_at_its_limit_a_namespace_makes_its_own_room() -> None:
    used = {"a": 90, "b": 28}
    assert list(QUOTAS.givers(used, "b", 2)) == ["a", "b"]
    assert list(QUOTAS.givers(used, "b", 3)) == ["b"]


def test_hints_for_everything_keep_the_shares_of_others() -> None:
    assert QUOTAS.protected_bytes("b", 100) == 30
    assert QUOTAS.protected_bytes("c", 100) == 50
    assert QUOTAS.protected_bytes("a", 100) == 90
    assert QUOTAS.protected_bytes("b", 60) == 20
    assert QUOTAS.protected_bytes("b", 30) == 0


@pytest.mark.parametrize(("guaranteed", "limit"), [(-1, None), (5, 4)])
def test_quotas_that_cannot_be(guaranteed: int, limit: int | None) -> None:
    with pytest.raises(ValueError, match="share"):
        Quota(guaranteed_bytes=guaranteed, limit_bytes=limit)
