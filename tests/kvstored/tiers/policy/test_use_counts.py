from hypothesis import given
from hypothesis import strategies as st

from kvstored.tiers.policy.use_counts import UseCounts


def test_counts() -> None:
    counts: UseCounts[str] = UseCounts(10)
    assert counts.add("a") == 1
    assert counts.add("a") == 2
    assert (counts.count("a"), counts.count("b")) == (2, 0)


def test_aging_halves_and_forgets() -> None:
    counts: UseCounts[str] = UseCounts(2)
    for key in "aaaab":
        counts.add(key)
    assert counts.add("c") == 1
    assert (counts.count("a"), counts.count("b"), len(counts)) == (2, 0, 2)


@given(keys=st.lists(st.integers(0, 30), max_size=300))
def test_memory_is_bounded_and_counts_never_exceed_uses(keys: list[int]) -> None:
    counts: UseCounts[int] = UseCounts(8)
    for position, key in enumerate(keys):
        assert 1 <= counts.add(key) <= keys[: position + 1].count(key)
        assert len(counts) <= 8
