"""Daemons of benchmarks as forks of the template of tests.

A benchmark starts ``kvstored format`` and ``kvstored run`` as its user has them: two processes, two
seconds of CPU time, nearly all of it imports. Its tests start dozens of them and are not about that
start, which ``tests/benchmarks/kit/test_daemon_process.py`` is about.
"""

import os
import subprocess
import time
from pathlib import Path
from typing import IO

import pytest

from benchmarks.kit.daemon_process import DaemonProcess
from tests.support.daemon import template
from tests.support.template import DAEMON, ForkedProcess
from tests.support.verbs import VERB
from tests.support.waiting import PATIENCE_S, POLL_S

PRODUCT = "kvstored"


class Child(ForkedProcess):
    """A fork that can be waited for with a limit, as ``subprocess.Popen``."""

    def wait(self, timeout: float = PATIENCE_S) -> int:
        """The exit status; raises TimeoutExpired."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(PRODUCT, timeout)
            time.sleep(POLL_S)
        return status


def fork_daemons(patch: pytest.MonkeyPatch) -> None:
    """From now on a ``DaemonProcess`` of benchmarks forks what it starts of the product."""
    spawn = DaemonProcess._spawn

    def fork(
        self: DaemonProcess, module: str, verb: str, log: IO[bytes]
    ) -> subprocess.Popen[bytes] | Child:
        if module != PRODUCT:
            return spawn(self, module, verb, log)
        child = Child(template(), _forked(self, verb, Path(log.name)).pid)
        if self.options.split is not None:
            self.options.split.place_child(child.pid)
        return child

    patch.setattr(DaemonProcess, "_spawn", fork)


def _forked(daemon: DaemonProcess, verb: str, log: Path) -> ForkedProcess:
    config = str(daemon.options.config)
    if verb == "run":
        environment = {"NOTIFY_SOCKET": str(daemon._notify_address)}
        return template().fork(DAEMON, log, config=config, environment=environment)
    return template().fork(VERB, log, words=[verb, "--config", config], output=os.devnull)
