import errno
import gc
import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from kvstored.store.index import probe as index_probe
from kvstored.store.index import service as index_service
from kvstored.store.index.aside import set_aside
from kvstored.store.index.index import (
    DATA_FILE,
    Index,
    IndexChange,
    IndexDamagedError,
    IndexFailure,
)
from kvstored.store.index.probe import probe_in_child
from kvstored.store.index.scan import Scanned
from kvstored.store.index.service import CLEAN_FILE, close_cleanly, open_for_service
from kvstored.store.index.snapshot import SNAPSHOT_FILE, open_snapshot
from tests.kvstored.store.index_stores import (
    MAP_BYTES,
    chunk_id,
    extent_at,
    meta,
    record_at,
)
from tests.kvstored.store.served_index import COUNT, extent_of, ignore, table_of
from tests.support.forked_probe import ForkedProbe


@pytest.fixture(autouse=True)
def _forked_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks through indexes in forked children: ``test_probe.py`` has those that are started."""
    forked = SimpleNamespace(Popen=ForkedProbe, PIPE=subprocess.PIPE)
    monkeypatch.setattr(index_probe, "subprocess", forked)


def chunks_of(claims) -> set[bytes]:
    return {row.tobytes() for block in claims for row in block.identities}


def damage_pages(path: Path, first_page: int) -> None:
    """Overwrites everything from a page on, as far as the file goes."""
    data = path / DATA_FILE
    content = bytearray(data.read_bytes())
    start = first_page * 4096
    content[start:] = b"\xa5" * (len(content) - start)
    data.write_bytes(content)


def test_new_index_counts_as_clean(tmp_path: Path) -> None:
    opened = open_for_service(tmp_path / "index", MAP_BYTES, ignore)
    assert opened.was_clean
    assert opened.snapshot is None
    assert opened.index.meta() is None
    close_cleanly(opened.index, table_of(range(0)), 1)
    assert (tmp_path / "index" / CLEAN_FILE).exists()
    assert not (tmp_path / "index" / SNAPSHOT_FILE).exists()


def test_index_closed_in_order_is_clean_and_not_probed(clean: Path, monkeypatch) -> None:
    closed = Index.open(clean, map_bytes=MAP_BYTES, readonly=True)
    assert closed.meta() == meta(clean=True)
    closed.close()

    def refuse(path: Path, on_scanned: object) -> None:
        raise AssertionError(f"{path} was probed")

    monkeypatch.setattr("kvstored.store.index.service.probe_in_child", refuse)
    opened = open_for_service(clean, MAP_BYTES, ignore)
    assert opened.was_clean
    assert opened.index.meta() == meta(clean=False)
    assert not (clean / CLEAN_FILE).exists()
    assert not (clean / SNAPSHOT_FILE).exists()
    assert opened.snapshot is not None
    assert opened.snapshot.next_stamp == COUNT + 1
    expected = {chunk_id(number).encode() for number in range(COUNT)}
    assert chunks_of(opened.snapshot.claims) == expected
    opened.index.close()


def test_unclean_index_is_probed_and_opened(unclean: Path) -> None:
    scanned: list[Scanned] = []
    opened = open_for_service(unclean, MAP_BYTES, scanned.append)
    assert not opened.was_clean
    assert opened.snapshot is None
    assert opened.index.usage.chunk_count == COUNT
    expected = {chunk_id(number).encode() for number in range(COUNT)}
    assert chunks_of(part.claims for part in scanned) == expected
    opened.index.close()


def test_a_snapshot_without_the_marker_is_not_used(clean: Path) -> None:
    """Nobody has said that the index itself can be read without danger."""
    (clean / CLEAN_FILE).unlink()
    scanned: list[Scanned] = []
    opened = open_for_service(clean, MAP_BYTES, scanned.append)
    assert opened.snapshot is None
    assert sum(len(part.claims) for part in scanned) == COUNT
    opened.index.close()


def change(index: Index) -> None:
    index.apply(
        IndexChange(deletes=(chunk_id(1),), puts=((chunk_id(500), record_at(extent_at(9))),))
    )


def change_the_epoch(index: Index) -> None:
    index.apply(IndexChange(meta=replace(meta(clean=True), epoch=2)))


@pytest.mark.parametrize("alter", [change, change_the_epoch])
def test_a_snapshot_of_another_state_is_not_used(
    clean: Path, alter: Callable[[Index], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody changed the index behind the daemon's back: it is looked through as well."""
    index = Index.open(clean, map_bytes=MAP_BYTES)
    alter(index)
    index.close()
    opened = open_for_service(clean, MAP_BYTES, ignore)
    assert not opened.was_clean
    assert opened.snapshot is None
    assert "is not as the last stop left it" in caplog.text
    opened.index.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_snapshot_is_never_taken_for_whole(clean: Path, seed: int) -> None:
    data = bytearray((clean / SNAPSHOT_FILE).read_bytes())
    data[random.Random(seed).randrange(len(data))] ^= 0x40
    (clean / SNAPSHOT_FILE).write_bytes(data)
    opened = open_for_service(clean, MAP_BYTES, ignore)
    assert opened.was_clean
    if opened.snapshot is not None:
        with pytest.raises(ValueError, match="claims"):
            list(opened.snapshot.claims)
    opened.index.close()


def test_a_table_that_lacks_chunks_leaves_no_snapshot(unclean: Path) -> None:
    """As after the failure of a device, whose chunks nobody may evict any more."""
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    close_cleanly(index, table_of(range(COUNT - 1)), COUNT + 1)
    assert (unclean / CLEAN_FILE).exists()
    assert not (unclean / SNAPSHOT_FILE).exists()


def test_a_full_disk_costs_the_snapshot_only(unclean: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(index_service, "write_snapshot", fail)
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    close_cleanly(index, table_of(), COUNT + 1)
    assert (unclean / CLEAN_FILE).exists()


def test_a_full_disk_ended_a_clean_stop_with_a_traceback(
    unclean: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: only the snapshot could do without room, the mark beside it could not."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    index = Index.open(unclean, map_bytes=MAP_BYTES)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail)
        close_cleanly(index, table_of(), COUNT + 1)
    assert "is not marked as closed in order" in caplog.text
    opened = open_for_service(unclean, MAP_BYTES, ignore)
    opened.index.close()
    assert not opened.was_clean


@pytest.mark.parametrize("unread", ["the mark", "the index"])
def test_a_sector_that_could_not_be_read_kept_the_daemon_from_starting(
    clean: Path, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    """Bug: after a clean stop nobody looked through the index, and each start was a traceback."""

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        if unread == "the mark":
            patched.setattr(Path, "read_bytes", fail)
        else:
            patched.setattr(index_service, "_seal", fail)
        opened = open_for_service(clean, MAP_BYTES, ignore)
    opened.index.close()
    assert not opened.was_clean
    assert opened.snapshot is None


def test_a_folder_that_may_not_be_changed_is_named(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(index_service, "sync_directory", fail)
    with pytest.raises(IndexFailure, match=r"cannot change the folder of the index .* read-only"):
        open_for_service(clean, MAP_BYTES, ignore)


class Killed(BaseException):
    """The process ends between two steps."""


class StepCounter:
    """Ends the process before the n-th step that reaches the media."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, last: int) -> None:
        self.steps = 0
        self.last = last
        for target, name in (
            (os, "fsync"),
            (os, "unlink"),
            (os, "rename"),
            (Index, "apply"),
            (Index, "close"),
            (Index, "open"),
            (os, "close"),
        ):
            self._count(monkeypatch, target, name)

    def _count(self, monkeypatch: pytest.MonkeyPatch, target: object, name: str) -> None:
        real = getattr(target, name)

        def step(*arguments: object, **options: object) -> object:
            if self.steps == self.last:
                raise Killed
            self.steps += 1
            return real(*arguments, **options)

        monkeypatch.setattr(target, name, step)


def usable_snapshot(path: Path) -> set[bytes] | None:
    """Chunks of the snapshot that the next start would use."""
    opened = open_for_service(path, MAP_BYTES, ignore)
    try:
        return None if opened.snapshot is None else chunks_of(opened.snapshot.claims)
    finally:
        opened.index.close()


def stored_chunks(path: Path) -> set[bytes]:
    index = Index.open(path, map_bytes=MAP_BYTES, readonly=True)
    try:
        return {chunk.encode() for chunk, _ in index.walks.records()}
    finally:
        index.close()


def until_killed(run: Callable[[], object], last: int) -> bool:
    """Runs until the step; whether it came so far."""
    with pytest.MonkeyPatch.context() as patch:
        StepCounter(patch, last)
        try:
            run()
            was_killed = False
        except Killed:
            was_killed = True
    # What a process had open is closed with its end.
    gc.collect()
    return was_killed


@pytest.mark.parametrize("last", range(30))
def test_death_during_a_clean_stop_never_leaves_a_wrong_snapshot(unclean: Path, last: int) -> None:
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    was_killed = until_killed(lambda: close_cleanly(index, table_of(), COUNT + 1), last)
    with suppress(Exception):
        index.close()
    found = usable_snapshot(unclean)
    assert found is None or found == stored_chunks(unclean)
    assert was_killed or found is not None


@pytest.mark.parametrize("last", range(20))
def test_death_during_a_start_never_leaves_a_snapshot_that_a_change_follows(
    clean: Path, last: int
) -> None:
    """The change comes at once after the start, or after the step at which the start ended."""
    opened: list[Index] = []

    def start() -> None:
        opened.append(open_for_service(clean, MAP_BYTES, ignore).index)
        change(opened[0])

    was_killed = until_killed(start, last)
    for index in opened:
        index.close()
    found = usable_snapshot(clean)
    assert found is None or found == stored_chunks(clean)
    assert was_killed or found is None


def test_death_while_it_serves_leaves_no_snapshot(clean: Path) -> None:
    opened = open_for_service(clean, MAP_BYTES, ignore)
    change(opened.index)
    opened.index.close()
    assert not (clean / CLEAN_FILE).exists()
    assert usable_snapshot(clean) is None


def test_damaged_tree_is_refused_and_can_be_set_aside(unclean: Path) -> None:
    damage_pages(unclean, 2)
    with pytest.raises(IndexDamagedError, match="index"):
        open_for_service(unclean, MAP_BYTES, ignore)
    assert set_aside(unclean).name == "index.damaged-1"
    opened = open_for_service(unclean, MAP_BYTES, ignore)
    assert opened.was_clean
    assert opened.index.usage.chunk_count == 0
    opened.index.close()
    assert set_aside(unclean).name == "index.damaged-2"


def test_a_truncated_map_is_found_before_anybody_maps_it(unclean: Path) -> None:
    data = unclean / DATA_FILE
    with data.open("r+b") as file:
        file.truncate(3 * 4096)
    with pytest.raises(IndexDamagedError, match="ends before its pages"):
        probe_in_child(unclean)


@pytest.mark.parametrize("seed", range(12))
def test_a_flipped_bit_anywhere_in_the_file_never_makes_a_wrong_record(
    unclean: Path, seed: int
) -> None:
    data = unclean / DATA_FILE
    content = bytearray(data.read_bytes())
    bit = random.Random(seed).randrange(len(content) * 8)
    content[bit // 8] ^= 1 << bit % 8
    data.write_bytes(content)
    try:
        index = open_for_service(unclean, MAP_BYTES, ignore).index
    except IndexFailure:
        return
    chunks = [chunk_id(n) for n in range(COUNT)]
    expected = [record_at(extent_of(n), stamp=n) for n in range(COUNT)]
    found = index.get_many(chunks)
    index.close()
    assert all(record in {None, wanted} for record, wanted in zip(found, expected, strict=True))


def test_a_failed_index_leaves_no_marker(tmp_path: Path) -> None:
    index = open_for_service(tmp_path / "index", 128 * 1024, ignore).index
    index._tables.health.failure = "a write failed"
    close_cleanly(index, table_of(range(0)), 1)
    assert not (tmp_path / "index" / CLEAN_FILE).exists()


def test_an_index_that_cannot_be_marked_is_closed_with_its_snapshot(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write of a start may be the first to meet damage."""
    files: list[IO[bytes]] = []

    def kept(directory: Path) -> IO[bytes]:
        file = open_snapshot(directory)
        assert file is not None
        files.append(file)
        return file

    def fail(*_: object) -> None:
        raise IndexDamagedError("met by the first write")

    with monkeypatch.context() as patch:
        patch.setattr(index_service, "open_snapshot", kept)
        patch.setattr(Index, "apply", fail)
        with pytest.raises(IndexDamagedError, match="first write") as caught:
            open_for_service(clean, MAP_BYTES, ignore)
    # LMDB opens no environment twice; the error keeps what was not closed.
    open_for_service(clean, MAP_BYTES, ignore).index.close()
    assert files[0].closed
    del caught
