"""How long the scheduler's thread may wait in one step. Pure: clock and waits are the caller's."""

from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")


class StepBudget:
    """``step_s`` seconds for all that is waited for in a step together. Belongs to one thread."""

    def __init__(self, step_s: float, *, clock: Callable[[], float]) -> None:
        self._step_s = step_s
        self._clock = clock
        self._left_s = step_s

    def begin_step(self) -> None:
        """What the step before has waited counts no more."""
        self._left_s = self._step_s

    def spend(self, wait: Callable[[float], ResultT]) -> ResultT:
        """What ``wait`` returns, which waits at most for the seconds that it is given.

        They are 0 when nothing is left: ``wait`` then only looks.
        """
        if self._left_s <= 0.0:
            return wait(0.0)
        started_s = self._clock()
        try:
            return wait(self._left_s)
        finally:
            self._left_s -= self._clock() - started_s
