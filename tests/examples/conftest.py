"""Fixtures for the tests of examples."""

import pytest

from tests.benchmarks.forked_daemons import fork_daemons


@pytest.fixture(autouse=True)
def _daemons_are_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start of each takes a tenth of its CPU time."""
    fork_daemons(monkeypatch)
