import pytest

from engine_adapters.link.errors import QuotaError
from engine_adapters.link.quota import EntryQuota


def test_nothing_new_always_fits() -> None:
    EntryQuota(entries_max=1, tokens_max=1).check([5, 5], [])


def test_what_just_fits() -> None:
    EntryQuota(entries_max=3, tokens_max=10).check([4, 4], [2])


@pytest.mark.parametrize(
    ("new", "limit_name", "limit"), [([1, 1], "entries_max", 3), ([3], "tokens_max", 10)]
)
def test_the_limit_is_named(new: list[int], limit_name: str, limit: int) -> None:
    with pytest.raises(QuotaError, match=f"{limit_name} allows {limit}") as caught:
        EntryQuota(entries_max=3, tokens_max=10).check([4, 4], new)
    assert (caught.value.limit_name, caught.value.limit) == (limit_name, limit)


@pytest.mark.parametrize("limits", [{"entries_max": 0}, {"tokens_max": 0}])
def test_a_quota_allows_something(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        EntryQuota(**limits)
