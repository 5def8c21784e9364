"""What the summary of an interrupted run says."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.unfinished import Unfinished
from tests.support.waiting import PATIENCE_S, wait_until

HANGS = """
import time
from pathlib import Path

def test_ends():
    pass

def test_hangs():
    Path("reached").touch()
    time.sleep(1000)
"""


def restore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_longest_comes_first() -> None:
    now_s = [0.0]
    unfinished = Unfinished(lambda: now_s[0])
    for nodeid in ("a", "b", "c"):
        unfinished.pytest_runtest_logstart(nodeid)
        now_s[0] += 10.0
    unfinished.pytest_runtest_logfinish("b")
    assert unfinished.sentences() == [
        "a had not ended after 30 s",
        "c had not ended after 10 s",
    ]


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "1")])
def test_a_run_that_was_cut_off_named_no_test(tmp_path: Path, workers: tuple[str, ...]) -> None:
    """Bug: CI was cut off with three of 249 tests left, and nobody knew which one hung."""
    (tmp_path / "test_it.py").write_text(HANGS)
    plugins = ("-p", "tests.support.unfinished", "-p", "no:cacheprovider")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *plugins, *workers, "test_it.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        # What a shell has started in the background ignores interrupts.
        preexec_fn=restore_interrupts,
    ) as run:
        try:
            wait_until((tmp_path / "reached").exists, within_s=PATIENCE_S)
            run.send_signal(signal.SIGINT)
            output, _ = run.communicate(timeout=PATIENCE_S)
        finally:
            run.kill()
    assert "test_it.py::test_hangs had not ended after" in output
    assert "test_ends had" not in output
