"""Threads that compute for large calls let the event loop pass.

A thread that lets the interpreter go and takes it back at once, as every look-up in LMDB does,
may starve those that wait for it: each is woken too late, and its time of waiting begins again.
So a thread that computes for long asks every few hundred microseconds whether the loop has
anything to do, and sleeps while it has. A process has one interpreter, and so one ``TURNSTILE``.
"""

import select
import selectors
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

PART_ITEMS = 256
"""What is done for so many chunks of a call takes some hundred microseconds."""
STEP_S = 0.00005
"""A sleep of one that lets the loop pass; the system makes about twice that of it."""
PAUSE_S = 0.001
"""The longest that one slice of a large call waits: the loop may have work without end."""


ItemT = TypeVar("ItemT")


class LoopSelector(selectors.EpollSelector):
    """The selector of an event loop, of which other threads can ask whether the loop has work."""

    def __init__(self) -> None:
        super().__init__()
        self._is_at_work = False
        self._loop_thread = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As every selector; a loop that has something to do does not let it wait."""
        self._loop_thread = threading.get_ident()
        self._is_at_work = timeout is not None and timeout <= 0
        try:
            return super().select(timeout)
        finally:
            self._is_at_work = True

    def has_work(self) -> bool:
        """Whether the loop runs, or waits for the interpreter to run; False on its own thread.

        Thread-safe.
        """
        if threading.get_ident() == self._loop_thread:
            return False
        if self._is_at_work:
            return True
        events = select.poll()
        events.register(self.fileno(), select.POLLIN)
        return bool(events.poll(0))


class Turnstile:
    """What a thread passes between the slices of a large call. Thread-safe."""

    def __init__(
        self,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._has_work: Callable[[], bool] = bool
        self._sleep = sleep
        self._clock = clock

    def watch(self, has_work: Callable[[], bool]) -> None:
        """From now on threads let a loop pass while it has work."""
        self._has_work = has_work

    def give_way(self) -> None:
        """Returns when the event loop has nothing to do, or after PAUSE_S."""
        if not self._has_work():
            return
        end = self._clock() + PAUSE_S
        while self._has_work() and self._clock() < end:
            self._sleep(STEP_S)

    def let_in(self, lock: threading.Lock) -> None:
        """Gives up a lock that this thread holds, and takes it again when others had their turn.

        One that is taken again at once is had by nobody else: who waits for it is woken too late.
        """
        lock.release()
        try:
            self._sleep(STEP_S)
            self.give_way()
        finally:
            lock.acquire()

    def parts(
        self, items: Sequence[ItemT], part_items: int = PART_ITEMS
    ) -> Iterator[Sequence[ItemT]]:
        """Stretches of the items; gives way before each but the first."""
        for start in range(0, len(items), part_items):
            if start:
                self.give_way()
            yield items[start : start + part_items]


TURNSTILE = Turnstile()
"""That of this process; it lets everybody pass at once until it watches a loop."""
