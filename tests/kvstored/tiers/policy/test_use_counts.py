import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kvstored.tiers.policy.use_counts import BUCKET_KEYS, UseCounts


def test_counts() -> None:
    counts: UseCounts[str] = UseCounts(4 * BUCKET_KEYS)
    assert counts.add("a") == 1
    assert counts.add("a") == 2
    assert (counts.count("a"), counts.count("b"), len(counts)) == (2, 0, 1)


def test_a_new_key_in_a_full_bucket_halves_and_forgets() -> None:
    counts: UseCounts[int] = UseCounts(BUCKET_KEYS)
    for key in range(1, BUCKET_KEYS + 1):
        for _ in range(1 if key == 3 else 4):
            counts.add(key)
    assert counts.add(100) == 1
    assert (counts.count(1), counts.count(3), len(counts)) == (2, 0, BUCKET_KEYS)
    # All others have two uses or the one of the new key, which is forgotten first.
    assert counts.add(101) == 1
    assert (counts.count(1), counts.count(100)) == (1, 0)


def test_counts_fade_until_one_is_forgotten() -> None:
    counts: UseCounts[int] = UseCounts(BUCKET_KEYS)
    for key in range(1, BUCKET_KEYS + 1):
        counts.add(key, 40.0 if key == 1 else 9.0)
    assert counts.add(100) == 1
    assert (counts.count(1), counts.count(2), len(counts)) == (40 / 32, 0, 2)


@given(keys=st.lists(st.integers(-30, 30), max_size=300))
@example(keys=[0, 1])
def test_memory_is_bounded_and_counts_never_exceed_uses(keys: list[int]) -> None:
    # Of these integers -1 and -2 have the same hash.
    keys = [key for key in keys if key != -1]
    counts: UseCounts[int] = UseCounts(2 * BUCKET_KEYS)
    for position, key in enumerate(keys):
        assert 1 <= counts.add(key) <= keys[: position + 1].count(key)
        assert len(counts) <= 2 * BUCKET_KEYS


def test_its_memory_is_taken_at_once() -> None:
    """Bug: each chunk that was read took 200 bytes more, until 65,536 were known."""
    counts: UseCounts[int] = UseCounts(4096)
    tracemalloc.start()
    try:
        for key in range(10_000):
            counts.add(key)
        grown_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown_bytes < 4096


@pytest.mark.parametrize("keys_max", [0, -8, 12])
def test_another_number_of_keys_is_refused(keys_max: int) -> None:
    with pytest.raises(ValueError, match=f"keys_max is {keys_max}"):
        UseCounts(keys_max)
