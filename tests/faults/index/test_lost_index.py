"""An index that is lost, cut short or another one's: the daemon rebuilds it or says why not.

Every chunk that was acknowledged is there afterwards, from the headers on the devices.
Fails when

* ``index_service._is_as_left`` does not look at the file (seen: after a clean stop the daemon
  itself died of SIGBUS);
* ``index_open.open_recovered`` does not look at the age of the index (seen: the chunk that was
  put after the copy was missing).
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvstored_client import Client, Reason
from tests.faults.flush.chunks import put_many, readable
from tests.faults.flush.lab import ARENA, check_is_clean
from tests.support import labs
from tests.support.daemon import MIB, DaemonProcess
from tests.support.seeds import seed

STORED = range(60)
PAGE_BYTES = 4096

Damage = Callable[[Path], None]


def truncated(part: float, byte_count: int = 0) -> Damage:
    """Leaves a part of the file and some bytes."""

    def damage(index: Path) -> None:
        data = index / "data.mdb"
        os.truncate(data, int(data.stat().st_size * part) + byte_count)

    return damage


def overwritten(name: str) -> Damage:
    """Garbage instead of a file, as long as it was."""

    def damage(index: Path) -> None:
        path = index / name
        path.write_bytes(random.Random(seed()).randbytes(path.stat().st_size))

    return damage


DAMAGES: dict[str, Damage] = {
    "folder deleted": shutil.rmtree,
    "file deleted": lambda index: (index / "data.mdb").unlink(),
    "half": truncated(0.5),
    "all but a byte": truncated(1, -1),
    "two pages": truncated(0, 2 * PAGE_BYTES),
    "one page": truncated(0, PAGE_BYTES),
    "a part of a page": truncated(0, 1000),
    "nothing": truncated(0),
    "garbage": overwritten("data.mdb"),
    "garbage in the lock file": overwritten("lock.mdb"),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    store = {"device_bytes": 33 * MIB, "slab_bytes": 4 * MIB, "index_map_bytes": 16 * MIB}
    overrides = {"store": store, "dram": {"capacity_bytes": 16 * MIB}}
    folder = tmp_path_factory.mktemp("served")
    with DaemonProcess(folder, overrides=overrides) as daemon:
        with Client(daemon.socket_path, arena_bytes=ARENA) as client:
            for number in STORED:
                assert put_many(client, [number]) == [Reason.UNSPECIFIED]
        yield daemon
        # After the last damage every byte is checked.
        assert daemon.terminate() == 0
        check_is_clean(daemon)


@pytest.fixture
def daemon(served: DaemonProcess) -> DaemonProcess:
    """A running daemon with all chunks stored."""
    for aside in served.index.parent.glob("index.damaged-*"):
        shutil.rmtree(aside)
    if served.process is not None and served.process.poll() is not None:
        served.kill()
    if served.process is None:
        shutil.rmtree(served.index, ignore_errors=True)
        served.start()
    return served


def stop(daemon: DaemonProcess, *, is_clean: bool) -> None:
    if is_clean:
        assert daemon.terminate() == 0
    else:
        daemon.kill()


def stop_name(is_clean: bool) -> str:
    return "clean" if is_clean else "killed"


def check_everything_is_there(daemon: DaemonProcess) -> None:
    """Reads all chunks, and writes one more."""
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert readable(client, STORED) == list(STORED)
        number = 1000 + client.admin.stats().epoch
        assert put_many(client, [number]) == [Reason.UNSPECIFIED]
        assert readable(client, [number]) == [number]
    assert daemon.process is not None
    assert daemon.process.poll() is None


LOSSES = dict.fromkeys(
    [
        ("half", False),
        ("file deleted", True),
        ("nothing", False),
        ("garbage in the lock file", False),
        *((name, is_clean) for name in DAMAGES for is_clean in (False, True)),
    ]
)
"""Damage, and whether the stop before it was clean: those that tell most come first."""


def name_of(loss: tuple[str, bool]) -> str:
    name, is_clean = loss
    return f"{name}, {stop_name(is_clean)}"


@labs.LOST_INDEXES.first(("name", "is_clean"), LOSSES, name=name_of)
def test_an_index_that_is_lost(daemon: DaemonProcess, name: str, is_clean: bool) -> None:
    stop(daemon, is_clean=is_clean)
    DAMAGES[name](daemon.index)
    daemon.start()
    check_everything_is_there(daemon)


@labs.OLDER_INDEXES.first("is_clean", [True, False], name=stop_name)
def test_an_older_copy_of_the_index(daemon: DaemonProcess, tmp_path: Path, is_clean: bool) -> None:
    """From a backup: what was put since then is there, and ``check`` says why it is not used."""
    stop(daemon, is_clean=is_clean)
    shutil.copytree(daemon.index, tmp_path / "backup")
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        number = 2000 + client.admin.stats().epoch
        assert put_many(client, [number]) == [Reason.UNSPECIFIED]
    stop(daemon, is_clean=is_clean)
    shutil.rmtree(daemon.index)
    shutil.copytree(tmp_path / "backup", daemon.index)
    check = daemon.run_verb("check")
    assert check.returncode == 1
    assert "is an older copy, of epoch" in check.stdout
    log_before = daemon.log
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert readable(client, [number]) == [number]
    lines = daemon.log.removeprefix(log_before).splitlines()
    (line,) = (line for line in lines if "is an older copy" in line)
    assert "it is kept as" in line
    check_everything_is_there(daemon)


@labs.FOREIGN_INDEXES.first("is_clean", [True, False], name=stop_name)
def test_the_index_of_another_set(daemon: DaemonProcess, tmp_path: Path, is_clean: bool) -> None:
    """Refused: the operator may have named the wrong one. Moved away, it is rebuilt."""
    with DaemonProcess(tmp_path) as other:
        stop(other, is_clean=is_clean)
        stop(daemon, is_clean=is_clean)
        shutil.rmtree(daemon.index)
        shutil.copytree(other.index, daemon.index)
    result = daemon.run_verb("run")
    assert result.returncode == 2, result.stderr
    sentence = result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert "belongs to device set" in sentence
    assert "move this one away" in sentence
    daemon.index.rename(tmp_path / "moved")
    daemon.start()
    check_everything_is_there(daemon)
