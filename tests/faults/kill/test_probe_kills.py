"""The child that looks through the index is killed: that is no damage, and costs nothing.

Fails when every signal counts as damage (seen: with ``-status in _SIGNALS_OF_DAMAGE``
replaced by ``status < 0`` the index is set aside and its sequences are lost).
"""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kvstored.store.index import probe as index_probe
from kvstored.store.index.index import IndexDamagedError, IndexFailure
from kvstored_client import Client
from tests.faults.kill.payload import SMALL, key_of
from tests.support.daemon import DaemonProcess, listens
from tests.support.waiting import PATIENCE_S, POLL_S


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGXCPU])
def test_index_probe_that_is_killed_is_no_damage(number: int, tmp_path: Path) -> None:
    with pytest.raises(IndexFailure, match=f"signal {int(number)}") as caught:
        index_probe._judge(tmp_path, -number, "")
    assert not isinstance(caught.value, IndexDamagedError)


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGSEGV, signal.SIGABRT])
def test_index_probe_that_dies_of_the_map_is_damage(number: int, tmp_path: Path) -> None:
    with pytest.raises(IndexDamagedError, match=f"signal {int(number)}"):
        index_probe._judge(tmp_path, -number, "")


def test_sequences_outlive_a_killed_probe(daemon: DaemonProcess) -> None:
    with Client(daemon.socket_path, arena_bytes="2MiB", strict=True) as client:
        client.sequences.create("dialogue", SMALL)
        client.sequences.append("dialogue", [key_of(1)], expected_chunks=0)
    daemon.kill()
    assert kill_probe_of_next_start(daemon) == 2
    assert "try again" in daemon.log
    assert not list(daemon.folder.glob("index.damaged-*"))
    daemon.start()
    with Client(daemon.socket_path, arena_bytes="2MiB", strict=True) as client:
        info = client.sequences.get("dialogue")
    assert info is not None
    assert info.keys == (key_of(1),)


STAY = f"""
import sys, time
if "kvstored.store.index.probe" in sys.orig_argv:
    time.sleep({PATIENCE_S})
"""
"""Python runs it first: the child is still there when it is killed, however late that is."""


def kill_probe_of_next_start(daemon: DaemonProcess) -> int:
    """Starts the daemon, kills its first child, and returns the daemon's exit status."""
    (daemon.folder / "sitecustomize.py").write_text(STAY)
    path = os.pathsep.join([str(daemon.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    with daemon.log_path.open("ab") as log:
        process = subprocess.Popen(
            daemon.command("run"), stderr=log, env={**os.environ, "PYTHONPATH": path}
        )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not (found := children.read_text().split()):
            assert not listens(daemon.socket_path), "the daemon needed no child"
            assert time.monotonic() < deadline
            time.sleep(POLL_S)
        os.kill(int(found[0]), signal.SIGKILL)
        return process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.wait()
