import pytest

from benchmarks.gpu.scale import CPU, FULL, QUICK, Scale
from benchmarks.gpu.time_budget import TimeBudget, reserved_after


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_does_not_fit_is_written_down() -> None:
    clock = Clock()
    budget = TimeBudget(limit_s=60.0, clock=clock)
    assert budget.allows("first", 50.0)
    clock.now_s += 50.0
    assert budget.allows("second", 10.0)
    assert not budget.allows("third", 10.5)
    (left_out,) = budget.left_out
    assert left_out.name == "third"
    assert left_out.why == "it takes about 10 s, and 10 s are left"


def test_time_of_later_parts_is_kept_for_them() -> None:
    budget = TimeBudget(limit_s=60.0, clock=Clock())
    assert not budget.allows("long", 30.0, reserved_s=31.0)
    assert budget.allows("long", 30.0, reserved_s=30.0)
    needs_s = {"copies": 1.0, "tests": 2.0, "restore": 4.0}
    assert [reserved_after(name, needs_s) for name in needs_s] == [6.0, 4.0, 0.0]
    with pytest.raises(ValueError, match="daemon"):
        reserved_after("daemon", needs_s)


def test_no_time_is_left_after_the_limit() -> None:
    clock = Clock()
    budget = TimeBudget(limit_s=5.0, clock=clock)
    clock.now_s += 9.0
    assert not budget.allows("late", 1.0)
    assert budget.left_out[0].why.endswith("0 s are left")


@pytest.mark.parametrize("scale", [FULL, QUICK, CPU])
def test_all_parts_together_fit_into_the_time(scale: Scale) -> None:
    """And that ends within nine minutes."""
    assert sum(scale.needs_s.values()) <= scale.limit_s <= 9 * 60
    assert list(scale.token_counts) == sorted(scale.token_counts)
