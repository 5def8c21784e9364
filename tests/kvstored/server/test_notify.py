"""What systemd hears."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from kvstored.server.notify import Notifier
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def manager(tmp_path: Path) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.settimeout(PATIENCE_S)
    return receiver


def notifier_of(manager: socket.socket, **environment: str) -> Notifier:
    return Notifier.from_environment(
        {"NOTIFY_SOCKET": manager.getsockname(), **environment}, pid=77
    )


def test_ready_and_stopping(manager: socket.socket) -> None:
    notifier = notifier_of(manager)
    notifier.ready("epoch 3")
    assert manager.recv(100) == b"READY=1\nSTATUS=epoch 3"
    notifier.stopping()
    assert manager.recv(100).startswith(b"STOPPING=1")


async def test_the_event_loop_pings(manager: socket.socket) -> None:
    notifier = notifier_of(manager, WATCHDOG_USEC="3000", WATCHDOG_PID="77")
    pulse = asyncio.create_task(notifier.keep_alive())
    for _ in range(3):
        assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
    pulse.cancel()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ],
)
async def test_no_pulse_where_no_watchdog_waits(
    manager: socket.socket, environment: dict[str, str]
) -> None:
    await notifier_of(manager, **environment).keep_alive()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(100)


def test_abstract_addresses() -> None:
    # The abstract namespace belongs to all test runs of this machine.
    name = f"kvstored-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(PATIENCE_S)
        Notifier(f"@{name}", watchdog_s=None).ready("x")
        assert receiver.recv(100).startswith(b"READY=1")


async def test_silent_without_a_manager() -> None:
    notifier = Notifier.from_environment({}, pid=1)
    notifier.ready("x")
    notifier.stopping()
    await notifier.keep_alive()


async def test_a_manager_that_is_gone_does_not_keep_the_daemon_from_draining(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Notifier(str(tmp_path / "gone"), watchdog_s=None).stopping()
    assert "does not listen" in caplog.text
