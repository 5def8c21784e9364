"""Damage that reads and writes of an index in service meet: the next start rebuilds it.

Fails when ``IndexHealth`` leaves no mark (seen: the next start served the same index), when
``open_for_service`` does not ask for it (seen: the index was opened, because a clean stop had
vouched for it), and when ``IndexHealth._mark_damage`` marks circumstances too (seen: an error of
the disk was taken for damage).
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from kvstored.store.index import probe as index_probe
from kvstored.store.index.damage_mark import DAMAGE_FILE, leave_mark, refuse_marked
from kvstored.store.index.index import Index, IndexChange, IndexDamagedError, IndexFailure
from kvstored.store.index.probe import probe
from kvstored.store.index.service import CLEAN_FILE, close_cleanly, open_for_service
from kvstored.store.start.index_open import begin_epoch, open_recovered, start
from tests.kvstored.store.index_stores import (
    MAP_BYTES,
    WrittenStore,
    chunk_id,
    chunks_of,
    extent_at,
    meta,
    record_at,
)
from tests.kvstored.store.served_index import COUNT, ignore, table_of

PUT = IndexChange(puts=((chunk_id(500), record_at(extent_at(9))),))


class FailingEnvironment:
    """An environment of which every transaction fails with the same error."""

    def __init__(self, error: lmdb.Error) -> None:
        self._error = error

    def begin(self, *_: object, **__: object) -> None:
        raise self._error

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def index(unclean: Path) -> Iterator[Index]:
    index = Index.open(unclean, map_bytes=MAP_BYTES)
    yield index
    index.close()


def fail_with(index: Index, error: lmdb.Error, ask: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index._tables, "environment", FailingEnvironment(error))
        with pytest.raises(IndexFailure):
            ask()


def asked_for(index: Index) -> dict[str, Callable[[], object]]:
    return {"write": lambda: index.apply(PUT), "read": lambda: index.get(chunk_id(1))}


@pytest.mark.parametrize("what", ["write", "read"])
def test_damage_is_marked(index: Index, what: str) -> None:
    fail_with(index, lmdb.CorruptedError("planned"), asked_for(index)[what])
    assert "planned" in (index.path / DAMAGE_FILE).read_text()
    with pytest.raises(IndexDamagedError, match=r"while served: cannot .* planned"):
        refuse_marked(index.path)


def test_who_may_not_look_took_the_index_for_damaged(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound index of another user was set aside, and its sequences with it."""

    def deny(path: Path) -> None:
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr(os, "lstat", deny)
    with pytest.raises(IndexFailure, match=r"cannot tell whether .* denied") as raised:
        refuse_marked(index.path)
    assert not isinstance(raised.value, IndexDamagedError)


@pytest.mark.parametrize("what", ["write", "read"])
@pytest.mark.parametrize("kind", [lmdb.DiskError, lmdb.PanicError, lmdb.MapFullError])
def test_circumstances_are_not(index: Index, what: str, kind: type[lmdb.Error]) -> None:
    fail_with(index, kind("planned"), asked_for(index)[what])
    refuse_marked(index.path)


def test_who_only_reads_leaves_no_mark(unclean: Path) -> None:
    """`kvstored check` changes nothing."""
    index = Index.open(unclean, map_bytes=MAP_BYTES, readonly=True)
    fail_with(index, lmdb.CorruptedError("planned"), lambda: index.get(chunk_id(1)))
    index.close()
    refuse_marked(unclean)


def test_damage_that_only_a_write_meets_outlives_a_restart(tmp_path: Path) -> None:
    """Bug: the start looked through the tables, found them sound, and the first puts failed."""
    store = WrittenStore()
    for number in range(1, 41):
        store.write(number)
    path = tmp_path / "index"
    index, _ = open_recovered(path, MAP_BYTES, store.device_set, lambda *_: None)
    fail_with(index, lmdb.CorruptedError("planned"), lambda: index.apply(PUT))
    with pytest.raises(IndexFailure, match="cannot write"):
        index.apply(PUT)
    # Reads go on.
    assert index.get(chunk_id(1)) is not None
    index.close()
    started = start(path, MAP_BYTES, store.device_set, lambda *_: None)
    assert [chunk for chunk, _ in chunks_of(started.recovered)] == [
        chunk_id(number) for number in range(1, 41)
    ]
    started.index.apply(PUT)
    started.index.close()
    assert (tmp_path / "index.damaged-1" / DAMAGE_FILE).exists()
    # The mark went with what it was about.
    reopened, _ = open_recovered(path, MAP_BYTES, store.device_set, lambda *_: None)
    begin_epoch(reopened, store.device_set)
    reopened.close()
    assert not (tmp_path / "index.damaged-2").exists()


def test_damage_that_a_read_has_met_outlives_a_clean_stop(index: Index) -> None:
    fail_with(index, lmdb.CorruptedError("planned"), lambda: index.get(chunk_id(1)))
    index.apply(IndexChange(meta=meta()))
    close_cleanly(index, table_of(), COUNT + 1)
    assert (index.path / CLEAN_FILE).exists()
    with pytest.raises(IndexDamagedError, match="while served"):
        open_for_service(index.path, MAP_BYTES, ignore)
    with pytest.raises(IndexDamagedError, match="while served"):
        probe(index.path)


def test_the_first_cause_stays(tmp_path: Path) -> None:
    leave_mark(tmp_path, "first")
    leave_mark(tmp_path, "second")
    assert (tmp_path / DAMAGE_FILE).read_text() == "first"


def test_a_mark_without_a_cause_counts(tmp_path: Path) -> None:
    (tmp_path / DAMAGE_FILE).touch()
    with pytest.raises(IndexDamagedError, match="has met damage"):
        refuse_marked(tmp_path)


def test_a_mark_that_cannot_be_read_counts(tmp_path: Path) -> None:
    (tmp_path / DAMAGE_FILE).mkdir()
    with pytest.raises(IndexDamagedError, match="has met damage"):
        refuse_marked(tmp_path)


def test_a_mark_that_cannot_be_left_is_a_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave_mark(tmp_path / "nowhere", "cause")
    assert "could not be marked" in caplog.text


def test_a_mark_that_cannot_be_flushed_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("planned")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        leave_mark(tmp_path, "cause")
    with pytest.raises(IndexDamagedError, match="cause"):
        refuse_marked(tmp_path)


def test_the_probe_finds_what_only_a_write_would_meet(
    unclean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: Path) -> None:
        raise IndexDamagedError("a list of free pages")

    probe(unclean)
    monkeypatch.setattr(index_probe, "check_pages", damaged)
    with pytest.raises(IndexDamagedError, match="free pages"):
        probe(unclean)
    assert not (unclean / DAMAGE_FILE).exists()
