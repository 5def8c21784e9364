"""The ten commands of docs/install.md, as a new operator types them."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.scale import Scale, at
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SMALL = {
    "KVSTORED_STORE__DEVICE_BYTES": "128MiB",
    "KVSTORED_STORE__SLAB_BYTES": "8MiB",
    "KVSTORED_STORE__INDEX_MAP_BYTES": "64MiB",
    "KVSTORED_DRAM__CAPACITY_BYTES": "64MiB",
}
"""What ``init`` chooses for a whole machine is too much for a test."""


def commands() -> str:
    text = (ROOT / "docs" / "install.md").read_text()
    found = re.search(r"^## Ten commands.*?^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    assert len(found[1].splitlines()) == 10
    return found[1]


@at(Scale.QUICK)
@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl on this machine")
def test_ten_commands_serve_observe_limit_recover_and_drain() -> None:
    programs = Path(sys.executable).parent
    # Paths of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="kvstored-", dir="/tmp") as folder:
        result = subprocess.run(
            ["bash", "-c", commands()],
            cwd=folder,
            env={**os.environ, **SMALL, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        log = (Path(folder) / "kvstored.log").read_text()
    shown = f"{result.stdout}\n{result.stderr}\n{log}"
    assert result.returncode == 0, shown
    for part in (
        "serving\n",
        "hit rate",
        "32.0 MiB",
        "the daemon is drained",
        "the store is sound",
    ):
        assert part in result.stdout, shown
    assert "serving epoch 1 " in log, shown
    assert "the last stop was not clean" in log, shown
    assert "serving epoch 2 " in log, shown
    assert log.rstrip().endswith("every write is durable"), shown
