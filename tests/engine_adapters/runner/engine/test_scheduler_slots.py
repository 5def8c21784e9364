import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.runner.engine.scheduler import SlotPool, SlotRange


def test_reserves_first_fit() -> None:
    pool = SlotPool(10)
    first, second = pool.reserve(4), pool.reserve(4)
    assert (first, second) == (SlotRange(0, 4), SlotRange(4, 4))
    assert pool.reserve(3) is None
    pool.release(SlotRange(0, 4))
    assert pool.free_count == 6
    assert pool.reserve(5) is None
    assert pool.reserve(3) == SlotRange(0, 3)


def test_refuses_to_release_twice() -> None:
    pool = SlotPool(4)
    slots = pool.reserve(2)
    assert slots is not None
    pool.release(slots)
    with pytest.raises(ValueError, match="is free already"):
        pool.release(slots)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 20))))
def test_ranges_never_overlap_and_all_come_back(steps: list[tuple[bool, int, int]]) -> None:
    pool = SlotPool(32)
    held: list[SlotRange] = []
    for reserves, count, choice in steps:
        if reserves or not held:
            slots = pool.reserve(count)
            if slots is not None:
                assert slots.count == count
                assert all(slots.stop <= other.first or other.stop <= slots.first for other in held)
                held.append(slots)
        else:
            pool.release(held.pop(choice % len(held)))
        assert pool.free_count == 32 - sum(slots.count for slots in held)
    for slots in held:
        pool.release(slots)
    assert pool.reserve(32) == SlotRange(0, 32)
