"""Fixtures for all tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.daemon import DaemonProcess

# No example fails for being slow: the machine may have other things to do.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A formatted, running daemon with two small devices."""
    with DaemonProcess(tmp_path) as process:
        yield process
