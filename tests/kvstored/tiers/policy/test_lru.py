from hypothesis import given
from hypothesis import strategies as st

from kvstored.tiers.policy.lru import LruPolicy

STEPS = st.lists(
    st.tuples(st.sampled_from(["insert", "touch", "remove"]), st.integers(0, 7)), max_size=60
)


@given(steps=STEPS)
def test_order_is_that_of_the_last_use(steps: list[tuple[str, int]]) -> None:
    policy: LruPolicy[int] = LruPolicy()
    model: list[int] = []
    for step, key in steps:
        group = key % 3
        getattr(policy, step)(key, group)
        was_there = key in model
        if was_there:
            model.remove(key)
        if step == "insert" or (step == "touch" and was_there):
            model.append(key)
    assert list(policy.victims()) == model
    for group in range(4):
        assert list(policy.victims(group)) == [key for key in model if key % 3 == group]
