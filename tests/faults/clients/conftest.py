"""A daemon for all tests of a module: none of them may leave a trace in it."""

from collections.abc import Iterator

import pytest

from tests.support.daemon import DaemonProcess


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A running daemon that the tests of a module attack one after the other."""
    with DaemonProcess(tmp_path_factory.mktemp("served")) as process:
        yield process
