"""A daemon that is started again at once waits for the last transfers of the killed one.

Seen without the wait in ``file_device._lock``: after a SIGKILL at ``io_uring_enter`` the next
start ended with DeviceBusyError, because the kernel keeps the file of a transfer in flight,
and with it the lock, until the transfer is over.
"""

import fcntl
import threading
import time
from pathlib import Path

import pytest

from kvstored.io import file_device
from kvstored.io.file_device import DeviceBusyError, FileDevice
from tests.faults.kill.payload import MIB

HELD_S = 0.3


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    path.write_bytes(bytes(MIB))
    return path


def test_lock_of_a_killed_daemon_is_waited_for(path: Path) -> None:
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        release = threading.Timer(HELD_S, fcntl.flock, (held, fcntl.LOCK_UN))
        release.start()
        began_at = time.monotonic()
        FileDevice.open(path).close()
        assert time.monotonic() - began_at >= HELD_S / 2
        release.join()


def test_lock_of_a_living_daemon_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_device, "LOCK_PATIENCE_S", 0.05)
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DeviceBusyError, match="another process uses it"):
            FileDevice.open(path)
