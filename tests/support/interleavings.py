"""Every order in which the steps of some threads can follow each other, one after the other.

A step ends where its thread comes to a ``point``. Points must not lie where the thread holds a
lock that another one needs. Each order is a run of its own, from a fresh start.
"""

import threading
from collections.abc import Callable, Iterator, Mapping

from tests.support.waiting import PATIENCE_S

Choices = list[tuple[int, int]]
"""Which of how many threads went on, at each step."""


class Turns:
    """Lets threads go on one at a time, as ``plan`` says and then always the first of them."""

    def __init__(self, plan: list[int]) -> None:
        self._plan = plan
        self._parked: dict[str, threading.Event] = {}
        self._names: dict[int, str] = {}
        self._changed = threading.Condition()
        self._live = 0

    def point(self) -> None:
        """Ends a step of the calling thread; does nothing in threads that are none of these."""
        name = self._names.get(threading.get_ident())
        if name is None:
            return
        turn = threading.Event()
        with self._changed:
            self._parked[name] = turn
            self._changed.notify_all()
        assert turn.wait(PATIENCE_S)

    def run(self, actors: Mapping[str, Callable[[], None]]) -> Choices:
        """Runs all to their ends; raises AssertionError when one does not come to a point."""
        self._live = len(actors)
        threads = [
            threading.Thread(target=self._act, args=(name, act)) for name, act in actors.items()
        ]
        for thread in threads:
            thread.start()
        choices: Choices = []
        while self._live:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self._parked) == self._live, PATIENCE_S)
                if not self._live:
                    break
                names = sorted(self._parked)
                step = len(choices)
                chosen = self._plan[step] if step < len(self._plan) else 0
                choices.append((chosen, len(names)))
                turn = self._parked.pop(names[chosen])
            turn.set()
        for thread in threads:
            thread.join()
        return choices

    def _act(self, name: str, act: Callable[[], None]) -> None:
        self._names[threading.get_ident()] = name
        self.point()
        try:
            act()
        finally:
            with self._changed:
                self._live -= 1
                self._changed.notify_all()


def every_order(run: Callable[[Turns], Choices]) -> Iterator[Choices]:
    """Runs every order once and tells what was chosen in each."""
    plan: list[int] | None = []
    while plan is not None:
        choices = run(Turns(plan))
        yield choices
        plan = _next_plan(choices)


def _next_plan(choices: Choices) -> list[int] | None:
    for step in reversed(range(len(choices))):
        chosen, count = choices[step]
        if chosen + 1 < count:
            return [*(earlier for earlier, _ in choices[:step]), chosen + 1]
    return None
