"""A daemon that is started again at once waits for the last transfers of the killed one.

Seen without the wait in ``file_device._when_free``: after a SIGKILL at ``io_uring_enter`` the next
start ended with DeviceBusyError, because the kernel keeps the file of a transfer in flight,
and with it the lock, until the transfer is over.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from kvstored.io import file_device
from kvstored.io.file_device import DeviceBusyError, FileDevice
from tests.faults.kill.payload import MIB

LOOKS = 3
"""Looks at the lock that find it held."""


class Clock:
    """Time that passes only while somebody sleeps; ``sleeps`` are how often that was."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.sleeps += 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    path.write_bytes(bytes(MIB))
    return path


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(file_device, "time", clock)
    return clock


def test_lock_of_a_killed_daemon_is_waited_for(path: Path, clock: Clock) -> None:
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        sleep = clock.sleep

        def release_in_time(seconds: float) -> None:
            sleep(seconds)
            if clock.sleeps == LOOKS:
                fcntl.flock(held, fcntl.LOCK_UN)

        clock.sleep = release_in_time  # type: ignore[method-assign]
        FileDevice.open(path).close()
    assert clock.sleeps == LOOKS


def test_lock_of_a_living_daemon_is_refused(path: Path, clock: Clock) -> None:
    with path.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DeviceBusyError, match="another process uses it"):
            FileDevice.open(path)
    assert clock.now_s == pytest.approx(file_device.LOCK_PATIENCE_S, abs=0.05)


def test_block_device_of_a_killed_daemon_is_waited_for(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lock of a file, the claim to a block device ends with the last transfer."""
    real = os.open

    def claimed(name: str, flags: int, *rest: int) -> int:
        if flags & os.O_EXCL and clock.sleeps < LOOKS:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", claimed)
    monkeypatch.setattr(stat, "S_ISBLK", lambda _: True)
    FileDevice.open(path).close()
    assert clock.sleeps == LOOKS
