"""Threads that let an event loop pass, and the loop that they ask."""

import asyncio
import os
import selectors
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kvstored.turnstile import PAUSE_S, STEP_S, LoopSelector, Turnstile
from tests.support.waiting import PATIENCE_S, wait_until


class Time:
    """A clock that only sleeps move; after ``work_s`` there is no work."""

    def __init__(self, work_s: float) -> None:
        self.now = 0.0
        self._work_s = work_s

    def has_work(self) -> bool:
        return self.now < self._work_s

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def turnstile(time: Time) -> Turnstile:
    turnstile = Turnstile(sleep=time.sleep, clock=time.clock)
    turnstile.watch(time.has_work)
    return turnstile


@pytest.mark.parametrize(
    ("work_s", "paused_s"), [(0.0, 0.0), (2.5 * STEP_S, 3 * STEP_S), (1.0, PAUSE_S)]
)
def test_who_computes_waits_while_the_loop_has_work_and_not_for_ever(
    work_s: float, paused_s: float
) -> None:
    time = Time(work_s)
    turnstile(time).give_way()
    assert time.now == pytest.approx(paused_s, abs=STEP_S / 2)


def test_nobody_waits_where_no_loop_is_watched() -> None:
    Turnstile(sleep=lambda _: pytest.fail("nobody is let pass")).give_way()


@pytest.mark.parametrize(("count", "pauses"), [(0, 0), (3, 0), (4, 1), (7, 2)])
def test_way_is_given_between_the_parts(count: int, pauses: int) -> None:
    time = Time(1e9)
    parts = list(turnstile(time).parts(range(count), 3))
    assert [item for part in parts for item in part] == list(range(count))
    assert all(len(part) <= 3 for part in parts)
    assert time.now == pytest.approx(pauses * PAUSE_S, abs=STEP_S)


def test_who_waits_for_a_lock_has_it_in_a_pause_of_its_holder() -> None:
    lock, is_had = threading.Lock(), threading.Event()

    def take_turn() -> None:
        with lock:
            is_had.set()

    def sleep(_: float) -> None:
        other = threading.Thread(target=take_turn)
        other.start()
        other.join(PATIENCE_S)

    with lock:
        Turnstile(sleep=sleep).let_in(lock)
        assert is_had.is_set()
        assert lock.locked()


class WatchedLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.selector = LoopSelector()
        self._loop = asyncio.SelectorEventLoop(self.selector)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> None:
        self._loop.call_soon_threadsafe(function)

    def end(self) -> None:
        self.call(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_forever()


@pytest.fixture
def loop() -> Iterator[WatchedLoop]:
    loop = WatchedLoop()
    yield loop
    loop.end()


def test_a_loop_has_work_while_it_runs_and_none_while_it_waits(loop: WatchedLoop) -> None:
    begun, may_end = threading.Event(), threading.Event()
    of_its_own: list[bool] = []

    def work() -> None:
        of_its_own.append(loop.selector.has_work())
        begun.set()
        may_end.wait(PATIENCE_S)

    loop.call(work)
    assert begun.wait(PATIENCE_S)
    assert loop.selector.has_work()
    may_end.set()
    wait_until(lambda: not loop.selector.has_work())
    # Who runs on the loop's thread would wait for itself.
    assert of_its_own == [False]


def test_a_loop_that_was_not_woken_yet_has_work() -> None:
    """Fails when only what the loop itself says counts: it says nothing while it waits."""
    selector = LoopSelector()
    reading, writing = os.pipe()
    try:
        selector.register(reading, selectors.EVENT_READ)
        assert not selector.has_work()
        os.write(writing, b"x")
        assert selector.has_work()
    finally:
        selector.close()
        os.close(reading)
        os.close(writing)
