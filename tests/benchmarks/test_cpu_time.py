import os
import subprocess
import sys
import time

import pytest

from benchmarks.cpu_time import process_cpu_s


def test_it_agrees_with_the_own_clock() -> None:
    before = time.process_time()
    measured = process_cpu_s(os.getpid())
    assert before <= measured <= time.process_time()


def test_it_sees_other_processes_and_refuses_those_that_are_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_cpu_s(child.pid) >= 0
    with pytest.raises(OSError, match="Invalid argument"):
        process_cpu_s(child.pid)
