import pytest

from engine_adapters.vllm.scheduler_side.step_budget import StepBudget


class World:
    def __init__(self) -> None:
        self.now_s = 5.0
        self.given: list[float] = []
        self.budget = StepBudget(4.0, clock=lambda: self.now_s)

    def spend(self, duration_s: float) -> None:
        def wait(wait_s: float) -> None:
            self.given.append(wait_s)
            self.now_s += duration_s

        self.budget.spend(wait)


def test_all_waits_of_a_step_share_its_time() -> None:
    world = World()
    for _ in range(4):
        world.spend(1.5)
    assert world.given == [4.0, 2.5, 1.0, 0.0]


def test_each_step_has_its_own_time() -> None:
    world = World()
    world.spend(9.0)
    world.budget.begin_step()
    world.spend(0.0)
    assert world.given == [4.0, 4.0]


def test_wait_that_raises_has_waited() -> None:
    world = World()

    def fail(_wait_s: float) -> None:
        world.now_s += 4.0
        raise KeyError

    with pytest.raises(KeyError):
        world.budget.spend(fail)
    world.spend(0.0)
    assert world.given == [0.0]


def test_what_is_waited_for_is_handed_on() -> None:
    assert StepBudget(0.0, clock=float).spend(lambda wait_s: f"{wait_s}") == "0.0"
