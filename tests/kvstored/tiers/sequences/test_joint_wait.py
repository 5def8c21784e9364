"""Items of one call wait together: who stalls takes no time from the others."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from kvstored.tiers.sequences.joint_wait import HELD_WAIT_S, JointWait, Steps

DEADLINE = 8.0
NEVER = math.inf


class VirtualTime:
    """A clock that only waits move, and futures that are done at given times of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: dict[Future[Any], float] = {}
        self.waits = 0

    def clock(self) -> float:
        return self.now

    def future(self, at: float) -> Future[Any]:
        future: Future[Any] = Future()
        self._due[future] = at
        return future

    def wait(
        self, futures: Sequence[Future[Any]], *, timeout: float | None, return_when: str
    ) -> None:
        assert return_when == "FIRST_COMPLETED"
        self.waits += 1
        end = NEVER if timeout is None else self.now + timeout
        self.now = max(self.now, min(end, *(self._due[future] for future in futures)))
        assert self.now < NEVER
        for future in futures:
            if self._due[future] <= self.now:
                future.set_result(None)


class Call:
    """Items whose tails come at given times, and whose sequences are free from given times on."""

    def __init__(self, comes_at: Sequence[float], free_at: Sequence[float] = ()) -> None:
        self.time = VirtualTime()
        self.resumed: dict[int, float] = {}
        self.were_alone: dict[int, bool] = {}
        self.closed: list[int] = []
        self._comes_at = comes_at
        self._free_at = free_at or [0.0] * len(comes_at)
        self.joint: JointWait[bool] = JointWait(
            DEADLINE, clock=self.time.clock, wait_for=self.time.wait
        )

    def run(self) -> dict[int, bool]:
        """Of each item whether its tail had come when it went on."""
        return self.joint.run(range(len(self._comes_at)), self.steps)

    def steps(self, place: int, until: float) -> Steps[bool]:
        # As a lock that is waited for.
        if self._free_at[place] > until:
            self.time.now = max(self.time.now, until)
            return None
        self.time.now = max(self.time.now, self._free_at[place])
        landed = self.time.future(self._comes_at[place])
        try:
            yield landed
            self.resumed[place] = self.time.now
            self.were_alone[place] = self.joint.is_alone
            return landed.done()
        finally:
            self.closed.append(place)


def test_stalled_tails_took_the_time_of_those_after_them() -> None:
    """Bug: each took half of what was left, so that the last of many had nearly nothing."""
    call = Call([NEVER] * 6 + [7.9])
    assert call.run() == {**dict.fromkeys(range(6), False), 6: True}
    assert call.resumed == {**dict.fromkeys(range(6), DEADLINE), 6: 7.9}


def test_each_goes_on_when_its_tail_has_come() -> None:
    call = Call([5.0, NEVER, 1.0, 3.0])
    assert call.run() == {0: True, 1: False, 2: True, 3: True}
    assert call.resumed == {2: 1.0, 3: 3.0, 0: 5.0, 1: DEADLINE}
    assert call.were_alone == {2: False, 3: False, 0: False, 1: True}


def test_one_alone_is_waited_for_until_the_deadline() -> None:
    call = Call([7.9])
    assert call.run() == {0: True}
    assert call.time.waits == 1


def test_a_sequence_that_somebody_holds_delays_no_tail() -> None:
    call = Call([1.0, 2.0], free_at=[NEVER, 0.0])
    assert call.run() == {1: True}
    assert call.resumed[1] == pytest.approx(2.0)
    assert call.time.now == pytest.approx(DEADLINE, abs=2 * HELD_WAIT_S)


def test_a_sequence_that_becomes_free_is_begun_then() -> None:
    call = Call([6.0, NEVER], free_at=[4.0, 0.0])
    assert call.run() == {0: True, 1: False}


def test_without_a_deadline_it_ends_when_all_have_come() -> None:
    time = VirtualTime()
    joint: JointWait[str] = JointWait(NEVER, clock=time.clock, wait_for=time.wait)

    def steps(place: int, until: float) -> Steps[str]:
        _ = place, until
        yield time.future(100.0)
        return "came"

    assert joint.run([0], steps) == {0: "came"}


def test_a_fault_ends_the_steps_of_all() -> None:
    call = Call([NEVER, 1.0])

    def begin(place: int, until: float) -> Iterator[Any]:
        if place == 1:
            raise ZeroDivisionError
        return call.steps(place, until)

    with pytest.raises(ZeroDivisionError):
        call.joint.run(range(2), begin)  # type: ignore[arg-type]
    assert call.closed == [0]
