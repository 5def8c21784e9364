"""The time of a call tells nobody what another namespace has stored.

Fails when every ``Session`` has the namespace id of ``default``: a hit of the host's chunks takes
another time than a miss.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstored_client import Client
from tests.faults.clients.timing_guest import ARENA, STORED, put
from tests.support import labs
from tests.support.daemon import DaemonProcess, Overrides
from tests.support.sharing import ALONE
from tests.support.waiting import PATIENCE_S

GUEST = (sys.executable, "-m", "tests.faults.clients.timing_guest")
NOBODY = 65534
TOLERANCE = 0.03
"""Above four standard deviations of the area at the smaller size of the lab."""
OWN_LEAST = 0.05
"""So far from a half is the area of the caller's own chunks: the instrument can tell hits."""


@ALONE
@labs.TIMED_CALLS.sizes("count")
@pytest.mark.timeout(1800)
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_hits_of_another_namespace_take_as_long_as_misses(tmp_path: Path, count: int) -> None:
    overrides: Overrides = {
        "server": {"socket_mode": "0666"},
        "access": {"tenants": [{"namespace": "guests", "users": [NOBODY]}]},
    }
    with (
        DaemonProcess(tmp_path, overrides=overrides) as daemon,
        Client(daemon.socket_path, arena_bytes=ARENA, strict=True) as host,
    ):
        put(host, STORED)
        result = subprocess.run(
            [*GUEST, str(daemon.socket_path), str(NOBODY), str(count)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 10,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    areas = json.loads(result.stdout)
    sys.stdout.write(f"{areas}\n")
    assert abs(areas.pop("own read") - 0.5) > OWN_LEAST
    assert {verb: area for verb, area in areas.items() if abs(area - 0.5) > TOLERANCE} == {}
