"""Keys by rank against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from kvstored.tiers.policy.ranked_keys import RankedKeys

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
    assert len(keys._heaps[0]) < 100
