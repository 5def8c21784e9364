"""A tenant that opens connections to the gRPC socket without end: all others go on."""

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.server.connections import CONNECTIONS_PER_SESSION
from kvstored.server.held.places import OPERATOR_SESSIONS_MAX
from kvstored_client.errors import StoreError
from tests.faults.clients.witness import Witness
from tests.faults.memory.process import settled_state
from tests.support.daemon import DaemonProcess, Overrides
from tests.support.waiting import SOON_S, wait_until

FLOODER = (sys.executable, "-m", "tests.faults.clients.flooder")
NOBODY = 65534
SESSIONS_MAX = 8
GRPC_MAX = CONNECTIONS_PER_SESSION * (SESSIONS_MAX + OPERATOR_SESSIONS_MAX)
FLOOD = 8 * GRPC_MAX
OWN = 64
"""Descriptors that are left to the daemon beside these connections."""
OVERRIDES: Overrides = {
    "server": {"socket_mode": "0666", "sessions_max": SESSIONS_MAX},
    "access": {"tenants": [{"namespace": "guests", "users": [NOBODY]}]},
}


@contextlib.contextmanager
def flooding(path: Path) -> Iterator[None]:
    """Another user holds as many connections as it gets while the body runs."""
    process = subprocess.Popen(
        [*FLOODER, str(path), str(NOBODY), str(FLOOD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"tried\n"
        try:
            yield
        finally:
            process.stdin.close()


def comes_in(daemon: DaemonProcess) -> bool:
    """Whether a new client gets a session, makes a call, and finds what it has stored durably."""
    with contextlib.suppress(StoreError), Witness(daemon.socket_path, salt=b"late"):
        return True
    return False


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_connections_of_one_tenant_took_all_descriptors(tmp_path: Path) -> None:
    """Bug: nothing bounded them. Then no client came in, and no file was opened any more."""
    with (
        DaemonProcess(tmp_path, overrides=OVERRIDES) as daemon,
        Witness(daemon.socket_path),
    ):
        before = settled_state(daemon.pid)
        limits = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        room = before.descriptors + GRPC_MAX + OWN
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (room, limits[1]))
        with flooding(daemon.grpc_socket_path):
            wait_until(lambda: comes_in(daemon), within_s=SOON_S)
            wait_until(lambda: "as many as there may be" in daemon.log, within_s=SOON_S)
    assert "Too many open files" not in daemon.log
    assert f"those of user {NOBODY}" in daemon.log
    assert "Traceback" not in daemon.log
