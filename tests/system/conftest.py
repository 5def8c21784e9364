"""What tests of runner and daemon together begin with."""

from collections.abc import Iterator

import pytest

from kvstored_client import Client
from tests.support.daemon import DaemonProcess


@pytest.fixture
def salt() -> str:
    """Of the client: tests with a daemon of others name their own."""
    return ""


@pytest.fixture
def client(daemon: DaemonProcess, salt: str) -> Iterator[Client]:
    """A connected client of the test's daemon, which may be that of all tests of its module."""
    with Client(
        daemon.socket_path, arena_bytes="32MiB", salt=salt, reconnect_interval_s=0.0
    ) as client:
        assert client.available()
        yield client
