"""Tests that had begun and not ended when a run was cut off: which one hung, and how long."""

import time
from collections.abc import Callable

import pytest


class Unfinished:
    """A plugin of pytest: the summary of an interrupted run (SIGINT) names the tests under way.

    With workers, the process that shows their results hears of every begin and end.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._begun_s: dict[str, float] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begun_s[nodeid] = self._clock_s()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._begun_s.pop(nodeid, None)

    def sentences(self) -> list[str]:
        """One for each test under way, the longest first."""
        now_s = self._clock_s()
        return [
            f"{nodeid} had not ended after {now_s - begun_s:.0f} s"
            for nodeid, begun_s in self._begun_s.items()
        ]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for sentence in self.sentences():
            terminalreporter.line(sentence, red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Watches a run: with ``-p tests.support.unfinished``, or called by a ``conftest``."""
    config.pluginmanager.register(Unfinished())
