"""LMDB's lists of free pages are damaged: found by the start, by ``check``, or by a write.

Fails when ``index_probe.probe`` does not look through the pages (seen: ``check`` calls the
store sound), and when ``IndexHealth`` leaves no mark (seen: no file ``DAMAGED``).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.store.index.damage_mark import DAMAGE_FILE
from kvstored.store.index.index import DATA_FILE
from kvstored.store.index.page_format import INTEGER_KEYS, Meta, Tree, newest
from kvstored_client import Client, Reason
from tests.faults.flush.chunks import put_many, readable
from tests.faults.flush.lab import ARENA, check_is_clean
from tests.support.daemon import MIB, DaemonProcess
from tests.support.scale import Scale, at

STORED = range(20)
PAGE_BYTES = 4096
KIND_OFFSET = 10
OVERFLOW = b"\x04"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A running daemon with chunks, whose index has free pages."""
    store = {"device_bytes": 33 * MIB, "slab_bytes": 4 * MIB, "index_map_bytes": 16 * MIB}
    overrides = {"store": store, "dram": {"capacity_bytes": 16 * MIB}}
    with DaemonProcess(tmp_path, overrides=overrides) as daemon:
        with Client(daemon.socket_path, arena_bytes=ARENA) as client:
            for number in STORED:
                assert put_many(client, [number]) == [Reason.UNSPECIFIED]
        yield daemon


def free_root(file: Path) -> int:
    """Where the page with the lists of free pages begins."""
    data = file.read_bytes()
    metas = (Meta.decode(data[start : start + PAGE_BYTES]) for start in (0, PAGE_BYTES))
    free = Tree.decode(newest(*metas).free, INTEGER_KEYS)
    assert free.depth == 1, free
    return free.root * PAGE_BYTES


def overwrite(file: Path, offset: int, value: bytes) -> None:
    with file.open("r+b", buffering=0) as stream:
        stream.seek(offset)
        stream.write(value)


def check_everything_is_there(daemon: DaemonProcess, new: int) -> None:
    """Reads all chunks, puts another one, and verifies all of it."""
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert readable(client, STORED) == list(STORED)
        assert put_many(client, [new]) == [Reason.UNSPECIFIED]
    assert daemon.terminate() == 0
    check_is_clean(daemon)


@at(Scale.QUICK)
def test_a_list_that_names_a_page_in_use(daemon: DaemonProcess) -> None:
    daemon.kill()
    file = daemon.index / DATA_FILE
    root = free_root(file)
    (node,) = struct.unpack_from("<H", file.read_bytes(), root + 16)
    # Behind the node's header and its key: one page is free, that of the list itself.
    overwrite(file, root + node + 16, struct.pack("<qq", 1, root // PAGE_BYTES))
    check = daemon.run_verb("check")
    assert check.returncode == 2
    assert "is used twice, or also free" in check.stderr
    daemon.start()
    assert "is used twice, or also free; rebuild the index; it is kept as" in daemon.log
    check_everything_is_there(daemon, 100)


def test_damage_that_only_a_write_meets(daemon: DaemonProcess) -> None:
    """Bug: the next start could find the tables sound, and its first puts failed again."""
    overwrite(daemon.index / DATA_FILE, free_root(daemon.index / DATA_FILE) + KIND_OFFSET, OVERFLOW)
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert put_many(client, [100]) == [Reason.INTERNAL]
        assert readable(client, STORED) == list(STORED)
        assert client.admin.stats().index_failed
    assert (daemon.index / DAMAGE_FILE).exists()
    assert daemon.terminate() == 0
    daemon.start()
    assert "was found damaged while served" in daemon.log
    check_everything_is_there(daemon, 101)
