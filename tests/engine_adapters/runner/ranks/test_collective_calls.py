"""Calls that fail or last too long end all calls."""

from datetime import timedelta
from typing import cast

import pytest
from torch.distributed import Work

from engine_adapters.runner.ranks.collective_calls import (
    LEAST_WAIT_S,
    CollectiveCalls,
    RanksLostError,
)
from tests.engine_adapters.runner.memory import Clock


class ScriptedWork:
    """A call that takes ``duration_s``."""

    def __init__(self, duration_s: float) -> None:
        self.duration_s = duration_s
        self.waits_s: list[float] = []

    def wait(self, timeout: timedelta) -> bool:
        self.waits_s.append(timeout.total_seconds())
        if self.duration_s > timeout.total_seconds():
            raise RuntimeError("timed out")
        return True


def test_a_call_is_waited_for_until_the_deadline_and_no_other_is_made_behind_one_that_failed() -> (
    None
):
    clock = Clock()
    calls = CollectiveCalls(clock)
    calls.deadline_s = 10.0
    works = [ScriptedWork(5.0), ScriptedWork(8.0)]
    calls.make(lambda: cast("Work", works[0]))
    calls.make(lambda: None)
    clock.advance(4.0)
    assert not calls.is_broken
    with pytest.raises(RanksLostError, match=r"did not answer for 6\.0 s: timed out"):
        calls.make(lambda: cast("Work", works[1]))
    assert calls.is_broken
    assert [work.waits_s for work in works] == [[10.0], [6.0]]

    def begin() -> Work:
        raise AssertionError("a call was made")

    with pytest.raises(RanksLostError, match="earlier"):
        calls.make(begin)


def test_a_call_that_cannot_be_begun_is_lost_too_and_a_late_one_may_be_over() -> None:
    clock = Clock()
    calls = CollectiveCalls(clock)
    clock.advance(1.0)
    calls.make(lambda: cast("Work", ScriptedWork(LEAST_WAIT_S)))

    def begin() -> Work:
        raise RuntimeError("connection closed by peer")

    with pytest.raises(RanksLostError, match="closed by peer"):
        calls.make(begin)
    assert calls.is_broken


def test_the_time_of_all_calls_is_known() -> None:
    clock = Clock()
    calls = CollectiveCalls(clock)
    calls.deadline_s = 100.0

    def slow() -> None:
        clock.advance(3.0)

    for _ in range(2):
        calls.make(slow)
        clock.advance(1.0)
    assert calls.take_waited_s() == 6.0
    assert calls.take_waited_s() == 0.0
