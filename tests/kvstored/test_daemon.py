"""The daemon as a process: start, stop, death, and what it refuses."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstored import daemon as daemon_module
from kvstored.config import SESSIONS_MAX, Config
from kvstored.daemon import open_store
from kvstored.server.thread_share import THREADS_PER_SESSION
from kvstored.store.index import index_lock
from kvstored.store.index.index import READERS_MAX, Index, IndexChange
from kvstored.store.index.service import CLEAN_FILE
from kvstored.store.index.snapshot import SNAPSHOT_FILE
from kvstored.store.space.device_set import format_device_set
from kvstored.store.write.committer import Commit
from tests.faults.power.chunks import (
    DEVICE_BYTES,
    SLAB_BYTES,
    config_of,
    device_paths,
    index_path,
)
from tests.support.daemon import MIB, DaemonProcess
from tests.support.waiting import PATIENCE_S, wait_until


def ping(daemon: DaemonProcess) -> dict[str, Any]:
    result = daemon.run_verb("ping", "--json")
    assert result.returncode == 0, result.stderr
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def refusal(daemon: DaemonProcess) -> str:
    """The sentence with which ``kvstored run`` ends."""
    result = daemon.run_verb("run")
    assert result.returncode == 2, result.stderr
    sentence = result.stderr.splitlines()[-1]
    assert sentence.startswith("kvstored run: ")
    assert "Traceback" not in result.stderr
    return sentence


@pytest.fixture
def from_command() -> bool:
    """Whether daemon and verbs are what a user starts, instead of forks."""
    return False


AS_A_USER = pytest.mark.parametrize("from_command", [True])


@pytest.fixture
def fresh(tmp_path: Path, *, from_command: bool) -> Iterator[DaemonProcess]:
    """Configured, neither formatted nor started."""
    folder = tmp_path / "fresh"
    folder.mkdir()
    process = DaemonProcess(folder, from_command=from_command)
    yield process
    process.close()


@pytest.fixture
def daemon(tmp_path: Path, *, from_command: bool) -> Iterator[DaemonProcess]:
    """Formatted and started."""
    with DaemonProcess(tmp_path, from_command=from_command) as process:
        yield process


@AS_A_USER
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_drains_and_exits_with_0(daemon: DaemonProcess, number: signal.Signals) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(number)
    assert daemon.process.wait() == 0
    assert not daemon.socket_path.exists()
    assert not daemon.grpc_socket_path.exists()
    daemon.process = None
    daemon.start()
    assert ping(daemon)["epoch"] == 2
    assert "not clean" not in daemon.log


def test_a_clean_stop_leaves_a_snapshot_until_the_next_start(daemon: DaemonProcess) -> None:
    snapshot = daemon.index / "SNAPSHOT"
    assert not snapshot.exists()
    assert daemon.terminate() == 0
    assert snapshot.exists()
    daemon.start()
    assert not snapshot.exists()
    assert "snapshot" not in daemon.log


def test_after_a_kill_it_looks_through_the_index(daemon: DaemonProcess) -> None:
    daemon.restart()
    assert ping(daemon)["epoch"] == 2
    assert "the last stop was not clean" in daemon.log


def test_a_lost_index_is_rebuilt(daemon: DaemonProcess) -> None:
    daemon.kill()
    for path in daemon.index.iterdir():
        path.unlink()
    daemon.start()
    assert ping(daemon)["epoch"] == 2


def test_a_damaged_index_is_set_aside_and_rebuilt(daemon: DaemonProcess) -> None:
    daemon.kill()
    data = daemon.index / "data.mdb"
    data.write_bytes(b"\xff" * data.stat().st_size)
    daemon.start()
    assert ping(daemon)["epoch"] == 2
    assert (daemon.folder / "index.damaged-1" / "data.mdb").exists()


def test_a_second_daemon_on_the_same_devices_is_refused(daemon: DaemonProcess) -> None:
    other = DaemonProcess(daemon.folder)
    try:
        assert "another process uses it" in refusal(other)
    finally:
        other.close()
    daemon.configure({})
    assert ping(daemon)["epoch"] == 1


def test_a_second_daemon_renamed_the_index_of_one_that_serves(
    daemon: DaemonProcess, fresh: DaemonProcess
) -> None:
    """Bug: it had devices of its own, and only those are locked; it took the index for damaged."""
    fresh.format()
    fresh.configure({"store": {"index": str(daemon.index)}})
    assert f"another process serves from the index in {daemon.index};" in refusal(fresh)
    assert not list(daemon.folder.glob("index.damaged-*"))
    assert ping(daemon)["epoch"] == 1
    assert daemon.terminate() == 0
    assert "belongs to device set" in refusal(fresh)


def test_a_second_daemon_on_the_same_socket_is_refused(
    daemon: DaemonProcess, fresh: DaemonProcess
) -> None:
    fresh.configure({"server": {"socket": str(daemon.socket_path)}})
    fresh.format()
    assert f"another process listens on {daemon.socket_path}" in refusal(fresh)
    assert ping(daemon)["epoch"] == 1


@AS_A_USER
def test_devices_that_were_never_formatted(fresh: DaemonProcess) -> None:
    assert "No such file" in refusal(fresh)


def test_a_device_of_another_set(daemon: DaemonProcess, fresh: DaemonProcess) -> None:
    daemon.kill()
    fresh.format()
    mixed = [str(daemon.devices[0]), str(fresh.devices[1])]
    daemon.configure({"store": {"devices": mixed}})
    assert "belongs to device set" in refusal(daemon)


def test_an_index_of_another_set(daemon: DaemonProcess, fresh: DaemonProcess) -> None:
    assert daemon.terminate() == 0
    fresh.format()
    daemon.configure({"store": {"devices": [str(path) for path in fresh.devices]}})
    assert "belongs to device set" in refusal(daemon)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"dram": {"capacity_bytes": 1 << 60}}, "dram.capacity_bytes"),
        ({"server": {"socket_group": "no-such-group"}}, "'no-such-group'"),
        ({"access": {"tenants": [{"namespace": "a", "users": ["no-such-user"]}]}}, "no-such-user"),
        ({"access": {"tenants": [{"namespace": "a", "groups": ["no-such-one"]}]}}, "no-such-one"),
    ],
)
def test_what_this_machine_does_not_have(
    fresh: DaemonProcess, overrides: dict[str, dict[str, Any]], words: str
) -> None:
    fresh.configure(overrides)
    assert words in refusal(fresh)


def test_tenants_may_be_named(fresh: DaemonProcess) -> None:
    tenant = {"namespace": "mine", "users": ["root", os.getuid()], "groups": ["root"]}
    fresh.configure({"access": {"tenants": [tenant]}, "dram": {"capacity_bytes": 16 * MIB}})
    fresh.format()
    fresh.start()
    assert ping(fresh)["namespace"] == "mine"


@AS_A_USER
def test_systemd_hears_of_readiness_pulse_and_end(fresh: DaemonProcess) -> None:
    fresh.format()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        address = str(fresh.socket_path.with_name("notify"))
        manager.bind(address)
        manager.settimeout(PATIENCE_S)
        heard: list[bytes] = []

        def listen() -> None:
            # As the manager does, all the time: a full socket would hold the daemon up.
            while (message := manager.recv(100)) != b"end":
                heard.append(message.split(b"\n")[0])

        listening = threading.Thread(target=listen, daemon=True)
        listening.start()
        # The queue has room for ten messages: no pulse may fill it while this process is held up.
        fresh.start(environment={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "600000"})
        wait_until(lambda: b"READY=1" in heard and heard.count(b"WATCHDOG=1") >= 3)
        assert fresh.terminate() == 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"end", address)
        listening.join()
        assert heard.count(b"READY=1") == 1
        assert set(heard) == {b"READY=1", b"WATCHDOG=1", b"STOPPING=1"}


def test_the_grpc_socket_of_another_daemon_is_left_alone(
    daemon: DaemonProcess, fresh: DaemonProcess
) -> None:
    fresh.configure({"server": {"grpc_socket": str(daemon.grpc_socket_path)}})
    fresh.format()
    assert f"another process listens on {daemon.grpc_socket_path}" in refusal(fresh)
    assert not fresh.socket_path.exists()
    assert ping(daemon)["epoch"] == 1


# Becomes the daemon with descriptor 3 as systemd passes it.
ACTIVATE = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


def test_the_socket_of_systemd_is_served_and_outlives_the_daemon(fresh: DaemonProcess) -> None:
    fresh.format()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(fresh.socket_path))
        listener.listen()
        command = fresh.command("run")[1:]
        with subprocess.Popen(
            [sys.executable, "-c", ACTIVATE, str(listener.fileno()), *command],
            pass_fds=[listener.fileno()],
        ) as process:
            try:
                assert ping(fresh)["epoch"] == 1
                process.terminate()
                assert process.wait() == 0
            finally:
                process.kill()
        assert fresh.socket_path.is_socket()


def formatted(folder: Path) -> Config:
    """The configuration of a store in this process that was never started."""
    format_device_set(
        device_paths(folder),
        device_bytes=DEVICE_BYTES,
        slab_bytes=SLAB_BYTES,
        force=False,
        progress=lambda _done, _total: None,
    )
    return config_of(folder, depth_per_device=2)


@pytest.mark.parametrize("failing", ["open_engine", "TieredStore", "the body", "after the store"])
def test_a_start_that_failed_in_this_process_kept_the_index_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Bug: only the devices were closed, and nobody could start again before the process ended."""
    config = formatted(tmp_path)
    # Another test of this process may have threads of these names that are still ending.
    before = set(threading.enumerate())
    monkeypatch.setattr(index_lock, "LOCK_PATIENCE_S", 0.02)
    with monkeypatch.context() as patch:
        if hasattr(daemon_module, failing):
            patch.setattr(daemon_module, failing, fail_as_nobody_foresaw)
        with pytest.raises(ZeroDivisionError):
            fail_in_store(config, closes=failing == "after the store")
    with open_store(config) as (store, epoch):
        store.close()
    assert epoch == 2
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not [name for name in left if name.startswith(("io-", "kvstored-s"))]


@pytest.mark.parametrize("has_failed", [False, True])
def test_a_commit_of_which_nobody_knows_leaves_no_mark_and_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_failed: bool
) -> None:
    with open_store(formatted(tmp_path)) as (store, _):
        if has_failed:
            with monkeypatch.context() as patch:
                patch.setattr(Index, "apply", fail_as_nobody_foresaw)
                store._store.committer.submit(Commit(change=IndexChange(), done=lambda _: None))
                wait_until(lambda: store.has_failed)
        store.close()
    left = [(index_path(tmp_path) / name).exists() for name in (CLEAN_FILE, SNAPSHOT_FILE)]
    assert left == [not has_failed] * 2


def fail_in_store(config: Config, *, closes: bool) -> None:
    with open_store(config) as (store, _):
        if closes:
            store.close()
        raise ZeroDivisionError


def fail_as_nobody_foresaw(*_: object, **__: object) -> None:
    raise ZeroDivisionError


def test_the_index_has_readers_for_all_threads() -> None:
    # Those of the two pools of the server, and some that belong to nobody's session.
    assert 2 * THREADS_PER_SESSION * SESSIONS_MAX + 1024 <= READERS_MAX
