"""An index without room: its map, or its file system. Refused with a reason, and nothing lost.

Fails when

* ``IndexUsage.is_short`` is always False (seen: puts were refused with STORE_FULL);
* ``NvmeRoom`` evicts many chunks at once from a map without free pages, or the committer
  halves a group that did not fit (seen: no deletion and no put found a page ever after);
* ``SequenceTable`` stores what grows whatever room is left (seen: later puts were refused
  with STORE_FULL);
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
from tests.support import labs
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.scale import Scale, at
from tests.support.sharing import LOOP_DEVICES

TINY = StateLayout(
    model="tiny", dtype="float32", layers=(LayerState(StateKind.KV, 256),), chunk_tokens=16
)
"""Chunks of one slice of 4 KiB: many entries of the index for few bytes."""
BATCH = 64
LEAST_MAP_BYTES = 1 * MIB
DEVICE_BYTES = 66 * MIB
ROOM_MIN = 500
"""The least map has room for so many chunks, and not for twice as many."""
SEQUENCE_KEYS = 300
"""Of one sequence: three pages."""
ROOM_WITH_SEQUENCES_MIN = 200
"""Chunks for which there is room beside them."""
PUTS = 200
"""Each may evict some chunks, and fail all the same."""
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


@at(Scale.QUICK)
def test_chunks_go_before_the_map_is_full(daemon: DaemonProcess) -> None:
    """The least map that can be configured, and many times the chunks that it has room for."""
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        acked, reasons = put_until_refused(client, batches=60)
        assert set(reasons) == {Reason.UNSPECIFIED}
        assert client.admin.stats().counters["evicted_for_index_chunks"] > len(acked) / 2
    daemon.restart()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        kept = set(readable(client, acked, layout=TINY))
        # The oldest went, and no more of them than was needed.
        assert kept > set(acked[-ROOM_MIN:])
        assert kept < set(acked[-2 * ROOM_MIN :])
    assert daemon.terminate() == 0
    check_is_clean(daemon)


@labs.SMALLER_MAPS.marker()
def test_a_map_that_was_made_smaller(daemon: DaemonProcess) -> None:
    """It is too full at the start: chunks are evicted until puts find room again."""
    daemon.terminate()
    daemon.configure(sections(index_map_bytes=16 * MIB))
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        acked, reasons = put_until_refused(client, batches=110)
        assert set(reasons) == {Reason.UNSPECIFIED}
    assert daemon.terminate() == 0
    used_bytes = (daemon.index / "data.mdb").stat().st_size
    assert used_bytes > LEAST_MAP_BYTES
    daemon.configure(sections(index_map_bytes=used_bytes))
    daemon.start()
    check_everything_is_there(daemon, acked)
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        news = range(10_000_000, 10_000_000 + PUTS)
        reasons = [put_many(client, [new], layout=TINY)[0] for new in news]
        assert set(reasons) <= {Reason.UNSPECIFIED, Reason.STORE_FULL}
        assert reasons[-1] is Reason.UNSPECIFIED
    assert daemon.terminate() == 0
    check_is_clean(daemon)


@at(Scale.QUICK)
def test_sequences_leave_room_for_chunks(daemon: DaemonProcess) -> None:
    """A client that makes as many as there is room for is refused more, and harms nobody else."""
    keys = [key_of(0)] * SEQUENCE_KEYS
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        made = [client.sequences.create(str(number), TINY, keys=keys) for number in range(100)]
        count = sum(info is not None for info in made)
        assert 2 < count < 20
        assert None not in made[:count]
        acked, reasons = put_until_refused(client, batches=50)
        assert set(reasons) == {Reason.UNSPECIFIED}
        assert client.sequences.append("0", [key_of(0)], expected_chunks=len(keys)) is None
        assert client.sequences.truncate_back("0", 1) is not None
        assert all(client.sequences.delete(str(number)) for number in range(count))
        assert client.sequences.create("new", TINY, keys=keys) is not None
        newest = acked[-ROOM_WITH_SEQUENCES_MIN:]
        assert readable(client, newest, layout=TINY) == newest
    assert daemon.terminate() == 0
    check_is_clean(daemon)


def test_a_map_that_could_not_hold_anything_is_refused(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, overrides=sections(index_map_bytes=LEAST_MAP_BYTES - 1))
    try:
        result = daemon.run_verb("run")
        assert result.returncode == 2
        assert "store.index_map_bytes" in result.stderr
        assert "Traceback" not in result.stderr
    finally:
        daemon.close()


@LOOP_DEVICES
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
                # LMDB takes a write that ended early for an I/O error.
                causes = ("No space left on device", "mdb_txn_commit: Input/output error")
                assert any(cause in daemon.log for cause in causes)
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
