"""The tracer of the labs: it never waits for what its own rule has killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.kill import tracing
from tests.faults.kill.tracing import ANY_THREAD, KillPoint, killed_at
from tests.faults.power.recording import strace_problem
from tests.support.waiting import wait_until

PROBLEM = strace_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))
SLEEPER = "import time\nwhile True: time.sleep(0.001)"


def test_a_process_was_waited_for_that_died_while_it_was_attached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: nobody traces the dead, so the lab waited for its tracer until it lost patience."""
    tracer_of = tracing._tracer_of

    def tracer_of_the_dead(tid: int) -> int:
        wait_until(lambda: "State:\tZ" in Path(f"/proc/{tid}/status").read_text())
        wait_until(lambda: tracer_of(tid) == 0)
        return tracer_of(tid)

    monkeypatch.setattr(tracing, "_tracer_of", tracer_of_the_dead)
    with subprocess.Popen([sys.executable, "-c", SLEEPER]) as sleeper:
        with killed_at(sleeper.pid, KillPoint(ANY_THREAD, "clock_nanosleep", 1)):
            pass
        assert sleeper.wait() < 0
