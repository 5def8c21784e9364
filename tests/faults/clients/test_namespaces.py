"""Two users with namespaces of their own use the same keys and never meet.

Fails when every ``Session`` has the namespace id of ``default`` (seen: the guest pins the host's
chunks and deletes its sequence).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstored_client import Client
from tests.faults.clients.guest import KEYS, LAYOUT, SEQUENCE, put, read
from tests.support.daemon import DaemonProcess, Overrides
from tests.support.waiting import PATIENCE_S

NOBODY = 65534


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_guest_sees_nothing_of_the_host(tmp_path: Path) -> None:
    overrides: Overrides = {
        "server": {"socket_mode": "0666"},
        "access": {"tenants": [{"namespace": "guests", "users": [NOBODY]}]},
    }
    with (
        DaemonProcess(tmp_path, overrides=overrides) as daemon,
        Client(daemon.socket_path, arena_bytes="1MiB", strict=True) as host,
    ):
        assert host.changes() is not None
        assert put(host, b"\x11") == ["STORED"] * len(KEYS)
        assert host.sequences.create(SEQUENCE, LAYOUT) is not None
        result = subprocess.run(
            [sys.executable, "-m", "tests.faults.clients.guest", daemon.socket_path, str(NOBODY)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        seen = json.loads(result.stdout)
        nothing, everything = [False] * len(KEYS), [True] * len(KEYS)
        assert seen == {
            "namespace": "guests",
            "matched": 0,
            "read": [nothing, [0xEE]],
            "is pinned": False,
            "changes": [0, False],
            "deleted": 0,
            "sequences": [],
            "sequence is there": False,
            "sequence deleted": False,
            "admin": False,
            "put": ["STORED"] * len(KEYS),
            "own read": [everything, [0x22]],
            "created": True,
            "own deleted": 1,
        }
        assert read(host) == (everything, [0x11])
        assert host.sequences.list() == [SEQUENCE]
        assert host.delete(KEYS) == len(KEYS)
