"""An index without room: its map, or its file system. Refused with a reason, and nothing lost.

Fails when

* ``Committer._apply`` does not tell a full map from a failed index (seen: the puts were
  refused with INTERNAL);
* ``store.index_map_bytes`` has no least value (seen: the daemon took the map that it could
  not even make its tables in for a damaged one).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored_client import Client, LayerState, Reason, StateKind, StateLayout
from tests.faults.flush.chunks import key_of, put_many, readable
from tests.faults.flush.lab import ARENA, check_is_clean
from tests.faults.full.file_system import SmallFileSystem, obstacle
from tests.support.daemon import MIB, DaemonProcess, Overrides

TINY = StateLayout(
    model="tiny", dtype="float32", layers=(LayerState(StateKind.KV, 256),), chunk_tokens=16
)
"""Chunks of one slice of 4 KiB: many entries of the index for few bytes."""
BATCH = 64
LEAST_MAP_BYTES = 1 * MIB
DEVICE_BYTES = 66 * MIB
FULL_REASONS = {Reason.UNSPECIFIED, Reason.STORE_FULL}
BATCHES_BEHIND = 8
"""Puts that follow the first refusal."""


def sections(**store: object) -> Overrides:
    return {
        "store": {"device_bytes": DEVICE_BYTES, "slab_bytes": 8 * MIB, **store},
        "dram": {"capacity_bytes": 16 * MIB},
    }


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon whose devices hold more chunks than its index."""
    overrides = sections(index_map_bytes=LEAST_MAP_BYTES)
    with DaemonProcess(tmp_path, overrides=overrides) as daemon:
        yield daemon


def put_until_refused(client: Client, batches: int) -> tuple[list[int], list[Reason]]:
    """Puts batches, and some more after the first refusal; those acknowledged, all reasons."""
    acked: list[int] = []
    reasons: list[Reason] = []
    last = batches
    for number in range(batches):
        numbers = range(number * BATCH, (number + 1) * BATCH)
        found = put_many(client, numbers, layout=TINY)
        reasons += found
        acked += [
            chunk
            for chunk, reason in zip(numbers, found, strict=True)
            if reason is Reason.UNSPECIFIED
        ]
        if any(found):
            last = min(last, number + BATCHES_BEHIND)
        if number >= last:
            break
    return acked, reasons


def check_everything_is_there(daemon: DaemonProcess, acked: list[int]) -> None:
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert readable(client, acked, layout=TINY) == acked


def test_a_map_that_is_full(daemon: DaemonProcess) -> None:
    """The least map that can be configured, and more chunks than it has room for."""
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        acked, reasons = put_until_refused(client, batches=200)
        assert set(reasons) == FULL_REASONS
        assert client.admin.stats().counters.get("evicted_chunks", 0) == 0
        # Nothing is known to be wrong: what is there can be read and deleted.
        assert client.match(TINY, [key_of(acked[0])]).chunk_count == 1
        assert client.delete([key_of(acked[0])]) == 1
    check_everything_is_there(daemon, acked[1:])
    assert "nothing is stored any more" not in daemon.log
    daemon.restart()
    check_everything_is_there(daemon, acked[1:])
    assert daemon.terminate() == 0
    check_is_clean(daemon)
    daemon.configure(sections(index_map_bytes=16 * MIB))
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert set(put_many(client, [10_000_000], layout=TINY)) == {Reason.UNSPECIFIED}
    check_everything_is_there(daemon, [*acked[1:], 10_000_000])


def test_a_map_that_could_not_hold_anything_is_refused(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, overrides=sections(index_map_bytes=LEAST_MAP_BYTES - 1))
    try:
        result = daemon.run_verb("run")
        assert result.returncode == 2
        assert "store.index_map_bytes" in result.stderr
        assert "Traceback" not in result.stderr
    finally:
        daemon.close()


@pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))
def test_a_file_system_that_is_full(tmp_path: Path) -> None:
    """LMDB's file cannot grow: the index fails, and is whole again when there is room."""
    folder = tmp_path / "store"
    folder.mkdir()
    with SmallFileSystem(tmp_path / "lab", 8 * MIB) as small:
        daemon = DaemonProcess(folder, overrides=sections(index=str(small.path / "index")))
        try:
            daemon.format()
            daemon.start()
            with Client(daemon.socket_path, arena_bytes=ARENA) as client:
                before = list(range(1_000_000, 1_000_000 + BATCH))
                assert set(put_many(client, before, layout=TINY)) == {Reason.UNSPECIFIED}
                filler = small.fill()
                acked, reasons = put_until_refused(client, batches=200)
                acked = before + acked
                first = next(place for place, reason in enumerate(reasons) if reason)
                # A group that could not be committed is refused whole; nothing is acked later.
                assert set(reasons[first:]) == {Reason.INTERNAL}
                assert "No space left on device" in daemon.log
            check_everything_is_there(daemon, acked)
            daemon.kill()
            filler.unlink()
            daemon.start()
            check_everything_is_there(daemon, acked)
            with Client(daemon.socket_path, arena_bytes=ARENA) as client:
                assert set(put_many(client, [2_000_000], layout=TINY)) == {Reason.UNSPECIFIED}
            assert daemon.terminate() == 0
            check_is_clean(daemon)
        finally:
            daemon.close()
