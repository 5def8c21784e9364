"""Items of one call that wait for devices: all together until the deadline, each goes on at once.

One after the other, the first that does not come would take the time of those after it.
"""

import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Generic, TypeVar

HELD_WAIT_S = 0.02
"""How long a sequence that somebody else holds is waited for before the next one has its turn."""

OutcomeT = TypeVar("OutcomeT")
Steps = Generator[Future[Any], None, OutcomeT | None]
"""Of one item: yields what it waits for, is resumed when that is done or the deadline has come, and
returns the outcome; None, before it waits for anything, where it cannot begin yet."""


class JointWait(Generic[OutcomeT]):
    """The wait of one call, on its thread; ``deadline`` is on ``clock``."""

    def __init__(
        self,
        deadline: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait_for: Callable[..., object] = wait,
    ) -> None:
        self._deadline = deadline
        self._clock = clock
        self._wait_for = wait_for
        self._found: dict[int, OutcomeT] = {}
        self._under_way: dict[int, tuple[Steps[OutcomeT], Future[Any]]] = {}

    @property
    def is_alone(self) -> bool:
        """Whether nobody else of the call waits for anything; asked by the steps that run."""
        return not self._under_way

    def run(
        self, places: Iterable[int], begin: Callable[[int, float], Steps[OutcomeT]]
    ) -> dict[int, OutcomeT]:
        """The outcomes of the items at these places, of those that could begin by the deadline.

        ``begin`` is called again and again until an item can, and hears how long it may wait.
        """
        waiting = list(places)
        try:
            while waiting or self._under_way:
                is_over = self._clock() >= self._deadline
                for place in waiting:
                    pause_s = 0.0 if self._under_way else HELD_WAIT_S
                    self._go_on(place, begin(place, self._clock() + pause_s))
                waiting = [place for place in waiting if not self._is_known(place)]
                if is_over:
                    break
                if self._under_way:
                    self._wait(HELD_WAIT_S if waiting else None)
            for place, (steps, _) in tuple(self._under_way.items()):
                del self._under_way[place]
                self._go_on(place, steps)
        finally:
            for steps, _ in self._under_way.values():
                steps.close()
        return self._found

    def _wait(self, longest_s: float | None) -> None:
        """Lets those go on for whom something has come by then, or by the deadline."""
        left_s = max(0.0, self._deadline - self._clock())
        timeout_s = left_s if longest_s is None else min(left_s, longest_s)
        futures = [future for _, future in self._under_way.values()]
        self._wait_for(
            futures,
            timeout=None if timeout_s == float("inf") else timeout_s,
            return_when=FIRST_COMPLETED,
        )
        for place, (steps, future) in tuple(self._under_way.items()):
            if future.done():
                del self._under_way[place]
                self._go_on(place, steps)

    def _go_on(self, place: int, steps: Steps[OutcomeT]) -> None:
        try:
            self._under_way[place] = steps, next(steps)
        except StopIteration as stop:
            if stop.value is not None:
                self._found[place] = stop.value

    def _is_known(self, place: int) -> bool:
        return place in self._found or place in self._under_way
