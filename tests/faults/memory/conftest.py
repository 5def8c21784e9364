"""Daemons whose memory is measured are processes of their own from the start."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A formatted, running daemon, not forked from another process."""
    with DaemonProcess(tmp_path, from_command=True) as process:
        yield process
