"""Keys by rank against a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.tiers.policy.ranked_keys import _MOVED_AT_ONCE, _SPARE_ENTRIES, RankedKeys

STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 1), st.integers(0, 5)), max_size=300
)


@given(steps=STEPS)
def test_the_order_is_that_of_the_ranks(steps: list[tuple[bool, int, int, int]]) -> None:
    keys: RankedKeys[int] = RankedKeys()
    model: dict[int, tuple[int, int, int]] = {}
    for number, (is_put, key, group, rank) in enumerate(steps):
        if is_put:
            keys.put(key, group, rank)
            model[key] = (-rank, number, group)
        else:
            assert keys.take(key) == (model.pop(key, None) is not None)
        assert len(keys) == len(model)
        assert (key in keys) == (key in model)
        order = sorted(model, key=lambda one: model[one][:2])
        assert list(keys.keys()) == order
        for one in (0, 1):
            assert list(keys.keys(one)) == [key for key in order if model[key][2] == one]


def test_entries_that_do_not_count_are_dropped() -> None:
    keys: RankedKeys[str] = RankedKeys()
    keys.put("worst", 0, 10**9)
    for rank in range(1000):
        keys.put("moved", 0, rank)
    assert list(keys.keys()) == ["worst", "moved"]
    assert len(keys._heaps[0]) + len(keys._old_heaps[0]) < 200


def test_keys_that_were_put_again_lower_were_all_passed_over_by_one_walk() -> None:
    """Bug: the first eviction after the places of a whole queue had fallen paid for all."""
    keys: RankedKeys[int] = RankedKeys()
    for key in range(1000):
        keys.put(key, 0, 10_000 - key)
    for key in range(1000):
        keys.put(key, 0, 5000 - key)
    tops = [heap[0] for heap in (keys._heaps[0], keys._old_heaps.get(0)) if heap]
    assert all(map(keys._counts_still, tops))
    assert list(keys.keys()) == list(range(1000))


def test_the_order_is_that_of_the_ranks_while_entries_move_to_a_new_heap() -> None:
    keys: RankedKeys[int] = RankedKeys()
    model: dict[int, tuple[int, int]] = {}
    moving = 0
    for number in range(3000):
        # A number that is prime to 300: in some order all of them, again and again.
        key = number * 7 % 300
        if number % 5 == 4:
            keys.take(key)
            model.pop(key, None)
        else:
            keys.put(key, 0, number % 50)
            model[key] = (-(number % 50), number)
        moving += bool(keys._old_heaps.get(0))
        if number % 10 == 0:
            assert list(keys.keys()) == sorted(model, key=lambda one: model[one])
    assert moving > 500


@pytest.mark.parametrize("is_put", [True, False])
def test_one_call_looked_at_the_entries_of_all(
    monkeypatch: pytest.MonkeyPatch, is_put: bool
) -> None:
    """Bug: every so often one put made a new heap of 262,144 keys, in its owner's lock."""
    keys: RankedKeys[int] = RankedKeys()
    for key in range(1000):
        keys.put(key, 0, key)
    looks = 0
    counts_still = RankedKeys._counts_still

    def counted(one: RankedKeys[int], entry: tuple[float, int, int, int]) -> bool:
        nonlocal looks
        looks += 1
        return counts_still(one, entry)

    monkeypatch.setattr(RankedKeys, "_counts_still", counted)
    most = 0
    for step in range(4000):
        looks = 0
        if is_put:
            keys.put(step % 1000, 0, step)
        else:
            keys.take(step)
        most = max(most, looks)
    assert most <= 4 * _MOVED_AT_ONCE
    looks = 0
    expected = 999 if is_put else None
    assert next(keys.keys(), None) == expected
    assert looks < 4 * _SPARE_ENTRIES
